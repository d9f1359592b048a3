-- Everything, in one snapshot.
return whole_view()
