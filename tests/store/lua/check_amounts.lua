-- Say of each amount what it is; one below zero is an error of its own row.
--
-- ROW ARGV amount  a number
--
-- Returns for each row "even" or "odd", or an error

local words = {}
for i = 1, rows do
  local amount = tonumber((row(i)))
  if amount < 0 then
    words[i] = redis.error_reply("NEGATIVE there is no such amount")
  else
    words[i] = amount % 2 == 0 and "even" or "odd"
  end
end
return words
