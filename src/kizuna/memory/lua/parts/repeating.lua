-- Whether a write that is tried again has happened. An item remembers only who changed it last: if others were quicker
-- than whoever tries again, the feed tells. After `time`; wants `feed_length`.

local LOOKED_AT_ONCE, LOOKED_AT = 1000, 10000

-- Whether the feed still has all that happened since: it forgets what is oldest.
local function is_told_since(since)
  local oldest = redis.call("XRANGE", feed, "-", "+", "COUNT", 1)[1]
  local is_whole = redis.call("XLEN", feed) < tonumber(feed_length)
  return is_whole or tonumber((string.match(oldest[1], "^%d+"))) < since
end

-- "yes", the version that it made, and when; "no"; or "forgotten". `tried_ms` is how long ago it was tried first; empty: it
-- was not, and nobody has to look.
local function has_happened(id, token, tried_ms)
  if tried_ms == "" then
    return "no"
  end
  local since, newest = now - tonumber(tried_ms), "+"
  for _ = 1, LOOKED_AT / LOOKED_AT_ONCE do
    local entries = redis.call("XREVRANGE", feed, newest, whole(since), "COUNT", LOOKED_AT_ONCE)
    for _, entry in ipairs(entries) do
      local told = entry[2]
      if told[4] == id and told[14] == token then
        return "yes", told[10], string.match(entry[1], "^%d+")
      end
    end
    if #entries < LOOKED_AT_ONCE then
      return is_told_since(since) and "no" or "forgotten"
    end
    newest = "(" .. entries[#entries][1]
  end
  return "forgotten"
end
