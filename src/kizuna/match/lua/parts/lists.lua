-- Some commands take many members; Lua can hand on a few thousand at once.
local MOST = 1000

local function split(text)
  local words = {}
  for word in string.gmatch(text, "%S+") do
    words[#words + 1] = word
  end
  return words
end

local function remove(command, key, members)
  local removed = 0
  for first = 1, #members, MOST do
    removed = removed + redis.call(command, key, unpack(members, first, math.min(first + MOST - 1, #members)))
  end
  return removed
end
