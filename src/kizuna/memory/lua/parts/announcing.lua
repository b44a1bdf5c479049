-- Tells what happened: those who listen now, and the feed those who come later. After `time`; wants `feed_length`.

-- Channels have no shards: whoever listens hears of all.
local channels = string.match(root, "^{(.+):%d+}$") or root
local item_channel_of = channels .. string.sub(item_event_of, #root + 1)
local context_channel_of = channels .. string.sub(context_event_of, #root + 1)

-- Before anything is written: should somebody else have put something in its place, we fail here.
redis.call("XLEN", feed)

-- Types and contexts are the same for many.
local quoted_before = {}

local function quoted(text)
  if not text then
    return "null"
  end
  local json = quoted_before[text]
  if not json then
    json = string.find(text, "^[%w%-_.:/~]*$") and '"' .. text .. '"' or cjson.encode(text)
    quoted_before[text] = json
  end
  return json
end

local function tell(channel, data, event, id, type_, context, version, reason, token)
  redis.call("PUBLISH", channel, '{"timestamp":' .. now_text .. ',"data":{' .. data .. "}}")
  redis.call("XADD", feed, "MAXLEN", "~", feed_length, "*", "event", event, "id", id, "type", type_ or "",
    "contextId", context or "", "version", version or "", "reason", reason or "", "token", token or "")
end

-- `token` is by what a write is known that may be repeated; see `repeating`.
local function announce(event, id, type_, context, version, reason, token)
  local data = '"id":' .. quoted(id) .. ',"type":' .. quoted(type_) .. ',"contextId":' .. quoted(context)
  tell(item_channel_of .. event, data, "item:" .. event, id, type_, context, version, reason, token)
end

local function announce_context(event, id, name, type_, version, reason, token)
  local data = '"id":' .. quoted(id) .. ',"name":' .. quoted(name) .. ',"type":' .. quoted(type_)
  tell(context_channel_of .. event, data, "ctx:" .. event, id, type_, id, version, reason, token)
end
