-- What time it is: the server's, the same for the whole script.

local function whole(number)
  return string.format("%.0f", number)
end

local clock = redis.call("TIME")
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local now_text = whole(now)
