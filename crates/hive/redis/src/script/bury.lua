-- Deletes those who are dead by what was watched: 2… burials.
return bury(2)
