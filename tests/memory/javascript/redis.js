// A client for Redis that needs nothing but Node: as much of the usual one as the program beside it uses.
'use strict';

const { EventEmitter } = require('node:events');
const net = require('node:net');

const COMMANDS = [
  'del', 'eval', 'hgetall', 'hset', 'info', 'pexpireat', 'ping', 'publish', 'sadd', 'smembers', 'srem', 'subscribe',
  'zadd', 'zrange', 'zrem',
];

class Redis extends EventEmitter {
  constructor(host, port) {
    super();
    Object.assign(this, { host, port, waiting: [], unread: Buffer.alloc(0) });
    this.socket = net.connect(port, host);
    this.socket.setNoDelay(true);
    this.socket.on('data', (data) => this.read(data));
    this.socket.on('error', (error) => this.failAll(error));
    this.socket.on('close', () => this.failAll(new Error('the connection was closed')));
  }

  duplicate() {
    return new Redis(this.host, this.port);
  }

  pipeline() {
    return new Pipeline(this);
  }

  async quit() {
    const answer = await this.call('quit', []);
    this.socket.end();
    return answer;
  }

  call(name, parts) {
    return new Promise((resolve, reject) => {
      this.waiting.push({ name, resolve, reject });
      this.socket.write(pack(name, parts));
    });
  }

  read(data) {
    this.unread = Buffer.concat([this.unread, data]);
    for (let found = parse(this.unread, 0); found; found = parse(this.unread, 0)) {
      this.unread = this.unread.subarray(found.end);
      this.take(found.value);
    }
  }

  take(value) {
    if (Array.isArray(value) && value[0] === 'message') {
      this.emit('message', value[1], value[2]);
      return;
    }
    const { name, resolve, reject } = this.waiting.shift();
    if (value instanceof Error) {
      reject(value);
    } else {
      resolve(name === 'hgetall' ? toObject(value) : value);
    }
  }

  failAll(error) {
    this.waiting.splice(0).forEach(({ reject }) => reject(error));
  }
}

class Pipeline {
  constructor(client) {
    this.client = client;
    this.gathered = [];
  }

  // One error and one result of each, and no rejection: what failed in the middle stays in the middle.
  exec() {
    const sent = this.gathered.map(([name, parts]) => this.client.call(name, parts));
    return Promise.all(sent.map((one) => one.then((value) => [null, value], (error) => [error, undefined])));
  }
}

for (const name of COMMANDS) {
  Redis.prototype[name] = function send(...parts) {
    return this.call(name, parts);
  };
  Pipeline.prototype[name] = function gather(...parts) {
    this.gathered.push([name, parts]);
    return this;
  };
}

function pack(name, parts) {
  const flat = [name, ...parts.flatMap((part) => (isPlain(part) ? Object.entries(part).flat() : [part]))];
  const chunks = flat.map((part) => {
    const raw = Buffer.from(String(part));
    return Buffer.concat([Buffer.from(`$${raw.length}\r\n`), raw, Buffer.from('\r\n')]);
  });
  return Buffer.concat([Buffer.from(`*${flat.length}\r\n`), ...chunks]);
}

function isPlain(value) {
  return value !== null && typeof value === 'object';
}

// The value that begins at `at` and where it ends; nothing if it is not there whole.
function parse(buffer, at) {
  const lineEnd = buffer.indexOf('\r\n', at);
  if (lineEnd < 0) {
    return null;
  }
  const line = buffer.toString('utf8', at + 1, lineEnd);
  const end = lineEnd + 2;
  switch (String.fromCharCode(buffer[at])) {
    case '+': return { value: line, end };
    case '-': return { value: new Error(line), end };
    case ':': return { value: Number(line), end };
    case '$': return parseText(buffer, Number(line), end);
    case '*': return parseList(buffer, Number(line), end);
    default: throw new Error(`no RESP: ${line}`);
  }
}

function parseText(buffer, length, start) {
  if (length < 0) {
    return { value: null, end: start };
  }
  const end = start + length + 2;
  return end > buffer.length ? null : { value: buffer.toString('utf8', start, start + length), end };
}

function parseList(buffer, length, start) {
  const value = [];
  let end = start;
  for (let i = 0; i < length; i += 1) {
    const found = parse(buffer, end);
    if (!found) {
      return null;
    }
    value.push(found.value);
    end = found.end;
  }
  return { value: length < 0 ? null : value, end };
}

function toObject(flat) {
  const object = {};
  for (let i = 0; i < flat.length; i += 2) {
    object[flat[i]] = flat[i + 1];
  }
  return object;
}

module.exports = { Redis };
