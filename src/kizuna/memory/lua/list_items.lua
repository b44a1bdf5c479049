-- One page of items, in the order in which they were created, and of those of one millisecond, of their ids.
--
-- USES time        what time it is
-- USES announcing  tells what happened
-- USES places      where items stand
-- USES ending      how items end
-- USES field_numbers which field is where
-- USES fields      what is read of items
-- KEYS expiry       when items end; also says where to look on a cluster
-- ARGV root         what all keys begin with
-- ARGV feed_length  how many events the feed holds, about
-- ARGV type_        only of this type; empty: of any
-- ARGV context      only of this context; empty: of any
-- ARGV lowest       the lowest priority; empty: any
-- ARGV highest      the highest priority
-- ARGV ends_after   only those that end after this, in ms; empty: whenever
-- ARGV ends_before  only those that end before this, in ms; empty: whenever
-- ARGV newest       1: newest first
-- ARGV after        when the last one of the page before was created; empty: from the start
-- ARGV after_id     its id
-- ARGV limit        how many are wanted
-- ARGV most         how many are looked at
-- ARGV ids_only     1: whoever asks reads them himself, which is quicker; then nothing is known about them here
--
-- Returns {when the last one that was looked at was created, its id, 1 if there are more, 1 if an index does not agree
-- with its order and has to be settled, now in ms, values of the fields of one item (or its id), of the next …}

local reverse = newest == "1"
local range = reverse and "ZREVRANGE" or "ZRANGE"
local wanted, lookable = tonumber(limit), tonumber(most)
local chunk = math.min(wanted + 1, 1000)

local page, gone = {"", "", 0, 0, now_text}, {}
local found, looked = 0, 0

-- What the source of the members does not say already.
local filters = {}
local function filter(given, fits)
  if given ~= "" then
    filters[#filters + 1] = fits
  end
end
filter(type_, function(is)
  return is[TYPE] == type_
end)
filter(context, function(is)
  return is[CONTEXT] == context
end)
filter(lowest, function(is)
  local priority = tonumber(is[PRIORITY])
  return priority and priority >= tonumber(lowest) and priority <= tonumber(highest)
end)
filter(ends_after, function(is)
  return (tonumber(is[EXPIRES]) or 0) > tonumber(ends_after)
end)
filter(ends_before, function(is)
  return (tonumber(is[EXPIRES]) or math.huge) < tonumber(ends_before)
end)

local function fits(id, is)
  for _, one in ipairs(filters) do
    if not one(is) then
      return false
    end
  end
  if (tonumber(is[EXPIRES]) or math.huge) <= now then
    return false
  end
  local place = is[GENERATION_NUMBER] and place_of(id)
  return not (place and is_outdated(place[5], is[GENERATION_NUMBER]))
end

local function look_at(id, key)
  looked = looked + 1
  if ids_only == "1" then
    found = found + 1
    page[found + 5] = id
    return
  end
  local is = fields_of(id)
  if is.err or is_nothing(is) then
    gone[#gone + 1] = {id, key}
  elseif fits(id, is) then
    found = found + 1
    is[TOKEN], is[HELD_UNTIL] = nil, nil
    page[found + 5] = is
  end
end

local function stop_at(score, id, more)
  page[1], page[2], page[3] = whole(score), id, more and 1 or 0
end

local function is_enough()
  return found >= wanted or looked >= lookable
end

-- How many have ended, and were not put away yet: many, if nobody was there to do it for a while.
local ended = redis.call("ZCOUNT", expiry, "-inf", now_text)
local has_backlog = ended > 1000

local function stop_before(key, rank)
  local last = redis.call(range, key, rank - 1, rank - 1, "WITHSCORES")
  stop_at(tonumber(last[2]), last[1], true)
end

-- Past what has ended. Whole chunks are asked about at once; and not all there are, for others wait for us: nil, if
-- nothing was found that lives.
local function rank_of_living(key, rank)
  for _ = 1, 50 do
    local ids = redis.call(range, key, rank, rank + 199)
    local keys = {}
    for at, id in ipairs(ids) do
      keys[at] = item_of .. id
    end
    if #ids == 0 or redis.call("EXISTS", unpack(keys)) > 0 then
      return rank
    end
    rank = rank + #ids
  end
  stop_before(key, rank)
end

-- One sorted set, from a known place on.
local function look_through(key, rank)
  while true do
    rank = has_backlog and rank_of_living(key, rank) or not has_backlog and rank
    if not rank then
      return
    end
    local ids = redis.call(range, key, rank, rank + chunk - 1)
    for at, id in ipairs(ids) do
      if is_enough() then
        return stop_before(key, rank + at - 1)
      end
      look_at(id, key)
    end
    rank = rank + #ids
    if #ids < chunk then
      return
    end
  end
end

local function is_before(one, other)
  if one.score ~= other.score then
    return (one.score < other.score) ~= reverse
  end
  return one.id ~= other.id and (one.id < other.id) ~= reverse
end

local cursor = after ~= "" and {score = tonumber(after), id = after_id}

-- The next member of a source that comes after the cursor, or nil.
local function head_of(source)
  while true do
    if source.at > #source.buffer then
      source.buffer = redis.call(range, source.key, source.rank, source.rank + chunk - 1, "WITHSCORES")
      source.rank, source.at = source.rank + #source.buffer / 2, 1
      if #source.buffer == 0 then
        return nil
      end
    end
    local head = {id = source.buffer[source.at], score = tonumber(source.buffer[source.at + 1])}
    if not cursor or is_before(cursor, head) then
      return head
    end
    source.at = source.at + 2
  end
end

-- How many members stand before all that can come after the cursor.
local function start_of(key)
  if not cursor then
    return 0
  end
  return reverse and redis.call("ZCOUNT", key, "(" .. after, "+inf") or redis.call("ZCOUNT", key, "-inf", "(" .. after)
end

-- Several sorted sets: always the member that comes first of all.
local function merge(keys)
  local open = {}
  for _, key in ipairs(keys) do
    local source = {key = key, rank = start_of(key), buffer = {}, at = 1}
    source.head = head_of(source)
    if source.head then
      open[#open + 1] = source
    end
  end
  while #open > 0 do
    local first = 1
    for number = 2, #open do
      if is_before(open[number].head, open[first].head) then
        first = number
      end
    end
    if is_enough() then
      return stop_at(cursor.score, cursor.id, true)
    end
    local source = open[first]
    cursor = source.head
    look_at(cursor.id, source.key)
    source.at = source.at + 2
    source.head = head_of(source)
    if not source.head then
      table.remove(open, first)
    end
  end
end

-- Where the page begins in this sorted set.
local function rank_in(key)
  if not cursor then
    return 0
  end
  local rank = redis.call(reverse and "ZREVRANK" or "ZRANK", key, after_id)
  if rank and tonumber(redis.call("ZSCORE", key, after_id)) == cursor.score then
    return rank + 1
  end
  -- The last one of the page before is no longer there: behind those of its millisecond that came before it.
  rank = start_of(key)
  while true do
    local next_one = redis.call(range, key, rank, rank, "WITHSCORES")
    if #next_one == 0 or is_before(cursor, {id = next_one[1], score = tonumber(next_one[2])}) then
      return rank
    end
    rank = rank + 1
  end
end

-- Where hardly anything lives among what has ended: those that live, instead of all that are in the order.
local function look_at_living(order)
  local members = {}
  for _, id in ipairs(redis.call("ZRANGEBYSCORE", expiry, "(" .. now_text, "+inf")) do
    local score = redis.call("ZSCORE", order, id)
    local member = score and {id = id, score = tonumber(score)}
    if member and (not cursor or is_before(cursor, member)) then
      members[#members + 1] = member
    end
  end
  table.sort(members, is_before)
  for at, member in ipairs(members) do
    if is_enough() then
      return stop_at(members[at - 1].score, members[at - 1].id, true)
    end
    look_at(member.id, order)
  end
end

local function look_in_order(index, order)
  page[4] = redis.call("SCARD", index) ~= redis.call("ZCARD", order) and 1 or 0
  if has_backlog and redis.call("ZCARD", expiry) - ended <= 1000 then
    return look_at_living(order)
  end
  look_through(order, rank_in(order))
end

local function look_by_priority()
  local keys = {}
  for priority = math.max(1, tonumber(lowest) or 1), math.min(10, tonumber(highest) or 10) do
    keys[#keys + 1] = items_of_priority .. priority
  end
  for _, odd in ipairs(redis.call("SMEMBERS", odd_priorities)) do
    keys[#keys + 1] = items_of_priority .. odd
  end
  merge(keys)
end

if context ~= "" then
  look_in_order(items_of_context .. context, context_order_of .. context)
elseif type_ ~= "" then
  look_in_order(items_of_type .. type_, type_order_of .. type_)
else
  look_by_priority()
end

-- Whoever comes across what has ended puts it away: nobody has told of it yet.
for _, member in ipairs(gone) do
  local id, key = unpack(member)
  local place = place_of(id)
  if not place then
    redis.call("ZREM", key, id)
  end
  if not (place and end_gone(id, place)) then
    -- Somebody else took it away; that one may have brought others.
    page[4] = 1
  end
end
end_dependents(1000)
return page
