// Working memory as the specification has it, that knows nothing of kizuna.
//
// node memory.js HOST PORT ROOT
//
// Each line that it reads is a call, {"number": 1, "name": "getWorkingMemoryItem", "parts": ["a"]}, and each that it
// writes what came of one, {"number": 1, "result": …} or {"number": 1, "error": …}, or an event that it heard,
// {"channel": …, "event": …}.
'use strict';

const crypto = require('node:crypto');
const readline = require('node:readline');
const { Redis } = require('./redis.js');

const DEFAULT_TTL = 900;
const CONTEXT_DEFAULT_TTL = 3600;

const [host, port, root] = process.argv.slice(2);
const redisClient = new Redis(host, Number(port));

const itemKey = (id) => `${root}:memory:short:item:${id}`;
const typeIndex = (type) => `${root}:memory:short:idx:type:${type}`;
const contextIndex = (id) => `${root}:memory:short:idx:context:${id}`;
const priorityIndex = (priority) => `${root}:memory:short:idx:priority:${priority}`;
const expiryIndex = `${root}:memory:short:idx:expiry`;

// items

async function createWorkingMemoryItem(item) {
  const id = item.id || crypto.randomUUID();
  const now = Date.now();
  const expiry = now + (item.ttl || DEFAULT_TTL) * 1000;
  const contextId = item.contextId || 'global';
  const priority = item.priority || 5;
  const pipeline = redisClient.pipeline();
  pipeline.hset(itemKey(id), {
    id,
    type: item.type,
    content: JSON.stringify(item.content),
    contextId,
    priority,
    createdAt: now,
    expiresAt: expiry,
    metadata: JSON.stringify(item.metadata || {}),
  });
  pipeline.pexpireat(itemKey(id), expiry);
  pipeline.sadd(typeIndex(item.type), id);
  pipeline.sadd(contextIndex(contextId), id);
  pipeline.zadd(priorityIndex(priority), now, id);
  pipeline.zadd(expiryIndex, expiry, id);
  await pipeline.exec();
  return id;
}

async function getWorkingMemoryItem(id) {
  const data = await redisClient.hgetall(itemKey(id));
  if (!data || Object.keys(data).length === 0) {
    return null;
  }
  return {
    ...data,
    content: JSON.parse(data.content),
    metadata: JSON.parse(data.metadata),
    createdAt: parseInt(data.createdAt, 10),
    expiresAt: parseInt(data.expiresAt, 10),
    priority: parseInt(data.priority, 10),
  };
}

async function deleteWorkingMemoryItem(id) {
  const item = await getWorkingMemoryItem(id);
  if (!item) {
    return false;
  }
  const pipeline = redisClient.pipeline();
  pipeline.srem(typeIndex(item.type), id);
  pipeline.srem(contextIndex(item.contextId), id);
  pipeline.zrem(priorityIndex(item.priority), id);
  pipeline.zrem(expiryIndex, id);
  pipeline.del(itemKey(id));
  await pipeline.exec();
  return true;
}

// It looks at the first hundred of the lowest priority, whatever is left of their lives.
async function reduceTTLForLowPriorityItems(seconds) {
  const newExpiry = Date.now() + seconds * 1000;
  const pipeline = redisClient.pipeline();
  for (const id of await redisClient.zrange(priorityIndex(1), 0, 100)) {
    pipeline.pexpireat(itemKey(id), newExpiry);
    pipeline.zadd(expiryIndex, newExpiry, id);
  }
  await pipeline.exec();
}

const conditionalUpdateScript = `
  local current = tonumber(redis.call('HGET', KEYS[1], 'version'))
  if current ~= tonumber(ARGV[1]) then
    return 0
  end
  redis.call('HSET', KEYS[1], 'data', ARGV[2])
  redis.call('HSET', KEYS[1], 'version', tonumber(ARGV[3]))
  redis.call('HSET', KEYS[1], 'updatedAt', ARGV[4])
  return 1
`;

async function conditionalUpdate(id, version, newData) {
  const parts = [version, JSON.stringify(newData), version + 1, Date.now()];
  return (await redisClient.eval(conditionalUpdateScript, 1, itemKey(id), ...parts)) === 1;
}

// contexts

async function createContext(context) {
  const id = context.id || crypto.randomUUID();
  const now = Date.now();
  const expiry = now + (context.ttl || CONTEXT_DEFAULT_TTL) * 1000;
  const pipeline = redisClient.pipeline();
  pipeline.hset(`${root}:memory:context:${id}`, {
    id,
    name: context.name,
    type: context.type,
    createdAt: now,
    updatedAt: now,
    expiresAt: expiry,
    metadata: JSON.stringify(context.metadata || {}),
  });
  pipeline.pexpireat(`${root}:memory:context:${id}`, expiry);
  pipeline.sadd(`${root}:memory:ctx:idx:type:${context.type}`, id);
  pipeline.sadd(`${root}:memory:ctx:idx:active`, id);
  pipeline.zadd(`${root}:memory:ctx:idx:expiry`, expiry, id);
  await pipeline.exec();
  return id;
}

// events

async function publishMemoryEvent(channel, data) {
  await redisClient.publish(channel, JSON.stringify({ timestamp: Date.now(), data }));
}

async function publishItemCreatedEvent(item) {
  await publishMemoryEvent(`${root}:events:memory:item:created`, {
    id: item.id,
    type: item.type,
    contextId: item.contextId,
  });
}

function subscribeToMemoryEvents(channels, callback) {
  const subscriber = redisClient.duplicate();
  subscriber.on('message', (channel, message) => callback(channel, JSON.parse(message)));
  const subscribed = channels.map((channel) => subscriber.subscribe(channel));
  return { subscriber, subscribed };
}

// sealing

async function encryptData(data, key) {
  const iv = crypto.randomBytes(16);
  const cipher = crypto.createCipheriv('aes-256-gcm', key, iv);
  const encrypted = cipher.update(JSON.stringify(data), 'utf8', 'base64') + cipher.final('base64');
  return { encrypted, iv: iv.toString('base64'), authTag: cipher.getAuthTag().toString('base64') };
}

async function decryptData(encryptedData, key) {
  const decipher = crypto.createDecipheriv('aes-256-gcm', key, Buffer.from(encryptedData.iv, 'base64'));
  decipher.setAuthTag(Buffer.from(encryptedData.authTag, 'base64'));
  const decrypted = decipher.update(encryptedData.encrypted, 'base64', 'utf8') + decipher.final('utf8');
  return JSON.parse(decrypted);
}

async function storeConfidentialItem(item, encryptionKey) {
  const data = await encryptData(item.content, encryptionKey);
  return createWorkingMemoryItem({ ...item, content: { _encrypted: true, data } });
}

// how it is driven

const write = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const keyOf = (base64) => Buffer.from(base64, 'base64');

const CALLS = {
  createWorkingMemoryItem,
  getWorkingMemoryItem,
  deleteWorkingMemoryItem,
  reduceTTLForLowPriorityItems,
  conditionalUpdate,
  createContext,
  publishItemCreatedEvent,
  smembers: (name) => redisClient.smembers(`${root}:${name}`),
  zrange: (name) => redisClient.zrange(`${root}:${name}`, 0, -1),
  decryptData: (data, key) => decryptData(data, keyOf(key)),
  storeConfidentialItem: (item, key) => storeConfidentialItem(item, keyOf(key)),
  async subscribe(...names) {
    const channels = names.map((name) => `${root}:events:memory:${name}`);
    const { subscribed } = subscribeToMemoryEvents(channels, (channel, event) => write({ channel, event }));
    await Promise.all(subscribed);
    return channels;
  },
};

async function answer({ number, name, parts }) {
  try {
    write({ number, result: await CALLS[name](...parts) });
  } catch (error) {
    write({ number, error: String(error.message) });
  }
}

readline
  .createInterface({ input: process.stdin })
  .on('line', (line) => answer(JSON.parse(line)))
  .on('close', () => process.exit(0));
