-- Set a value or remove it, if it is what is expected, and note who did so. Once for each change, however often asked.
--
-- KEYS value      the value, as text
-- KEYS history    stream of its last changes
-- ARGV change     id of this change, by which a repetition is known
-- ARGV action     set, or unset
-- ARGV to         the new text; not looked at by unset
-- ARGV expects    anything; nothing: that there is no value; text: that it is `expected`
-- ARGV expected   not looked at unless `expects` is text
-- ARGV process    who changes it
-- ARGV note       why, or empty
-- ARGV keep       how many changes are kept
--
-- Returns {"changed", id of the change in the history}, the same with "repeated", {"same"} if there is nothing to
-- change, or {"unexpected", the text that is there, or false}

-- Far more than can have come in between while somebody repeats a change.
local REMEMBERED = 16

for _, entry in ipairs(redis.call("XREVRANGE", history, "+", "-", "COUNT", REMEMBERED)) do
  -- The change is the first field of every entry.
  if entry[2][2] == change then
    return {"repeated", entry[1]}
  end
end

local from = redis.call("GET", value)
local is_expected = expects == "anything" or (expects == "nothing" and not from) or (expects == "text" and from == expected)
if not is_expected then
  return {"unexpected", from}
end

local is_same = from == to
if action == "unset" then
  is_same = not from
end
if is_same then
  return {"same"}
end

local fields = {"change", change, "by", process}
if note ~= "" then
  table.insert(fields, "note")
  table.insert(fields, note)
end
if from then
  table.insert(fields, "from")
  table.insert(fields, from)
end
if action == "set" then
  table.insert(fields, "to")
  table.insert(fields, to)
  redis.call("SET", value, to)
else
  redis.call("DEL", value)
end
return {"changed", redis.call("XADD", history, "MAXLEN", "=", keep, "*", unpack(fields))}
