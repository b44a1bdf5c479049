-- What is wrong with one item or context, gathered. After `time`.

-- {kind of fault, key, what is there, what should be, …} of the one that is looked at, and its id.
local faults, looked_at

local function look_at(id)
  faults, looked_at = {}, id
end

local function fault(kind, key, there, should)
  for _, text in ipairs({kind, key, there or "", should or ""}) do
    faults[#faults + 1] = text
  end
end

-- A key of another type is found by whoever goes through the keys, not at each that should be in it.
local function is_refused(reply)
  return type(reply) == "table" and reply.err
end

local function check_in_set(key)
  if redis.pcall("SISMEMBER", key, looked_at) == 0 then
    fault("not in index", key)
  end
end

local function check_score(key, should)
  local score = redis.pcall("ZSCORE", key, looked_at)
  if is_refused(score) then
    return
  elseif not score then
    fault("not in index", key, "", should)
  elseif tonumber(score) ~= tonumber(should) then
    fault("wrong score", key, score, should)
  end
end

-- A place as text: what is nothing, and what stands behind the last thing, makes no difference.
local function text_of(place)
  local parts = {}
  for at = 1, 5 do
    local part = place[at]
    parts[at] = type(part) == "table" and table.concat(part, " ") or tostring(part or "")
  end
  return table.concat(parts, " | ")
end

local function check_place(key, should)
  local packed = redis.pcall("HGET", key, looked_at)
  if is_refused(packed) then
    return
  elseif not packed then
    return fault("not in index", key, "", text_of(should))
  end
  local readable, there = pcall(cmsgpack.unpack, packed)
  if not readable or type(there) ~= "table" then
    fault("unreadable", key, "", text_of(should))
  elseif text_of(there) ~= text_of(should) then
    fault("wrong place", key, text_of(there), text_of(should))
  end
end

-- Between the two looks at the clock the server has looked at its own; some stop it for a script.
local function check_end(key, expires)
  local ttl = redis.call("PTTL", key)
  local clock_after = redis.call("TIME")
  local latest = clock_after[1] * 1000 + math.floor(clock_after[2] / 1000)
  if ttl == -1 then
    fault("no end", key, "", whole(expires))
  elseif now + ttl > expires + 2 or latest + ttl < expires - 2 then
    fault("wrong end", key, whole(now + ttl), whole(expires))
  end
end

-- Whether all fields are there, and those that are numbers can be read.
local function is_complete(key, values, names, numbers)
  for at, name in ipairs(names) do
    if not values[at] or numbers[name] and not tonumber(values[at]) then
      fault("incomplete", key, values[at], name)
    end
  end
  return #faults == 0
end
