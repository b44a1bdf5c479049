-- Record the newest value of a metric.
--
-- KEYS current   the newest value
-- KEYS history   the last values
-- ARGV value     the value
-- ARGV most      how many values are kept, give or take a hundred
-- ARGV keep_ms   how long each of them is kept
--
-- Returns the id of the value in the history, which begins with the server's time in ms

-- The history first: it refuses a key of another type, and a full server does, before anything is written.
local id = redis.call("XADD", history, "MAXLEN", "~", most, "*", "value", value)
redis.call("SET", current, value, "PX", keep_ms)
redis.call("XTRIM", history, "MINID", "~", string.format("%.0f", string.match(id, "^%d+") - keep_ms))
redis.call("PEXPIRE", history, keep_ms)
return id
