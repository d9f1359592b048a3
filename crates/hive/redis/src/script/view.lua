-- The whole view, in one snapshot.
return whole_view()
