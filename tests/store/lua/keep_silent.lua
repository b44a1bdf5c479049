-- Return what is asked for instead of one result for each row.
--
-- ARGV answer     "few" or "word"
-- ROW ARGV value  a value for the result

local answers = {}
for i = 1, rows do
  local value = row(i)
  answers[i] = value ~= "nil" and value or nil
end
return answer == "few" and answers or answer
