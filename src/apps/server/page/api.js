// Talks to the server: requests, the stream of events, and what is known of jobs and the model.
import { ask } from './dom.js';

const BASE = '/ebb/v1';
let token = '';           // in memory only
let asking = null;        // one question at a time

export class ApiError extends Error {
  constructor(message, status, field) {
    super(message);
    this.status = status;
    this.field = field;
  }
}

/** Takes the token out of the address (#token=...), which is cleaned at once. */
export function takeToken() {
  const found = /^#token=(.+)$/.exec(location.hash);
  if (!found) return;
  token = decodeURIComponent(found[1]);
  history.replaceState(null, '', location.pathname);
}

const headers = more => token ? { ...more, Authorization: `Bearer ${token}` } : more;

async function askForToken(wrong) {
  asking ??= ask(wrong ? 'That key is not right. Which key was this server started with?'
    : 'This server asks for a key.', 'Log in', true).finally(() => { asking = null; });
  const answer = await asking;
  if (!answer) throw new ApiError('This server asks for a key.', 401);
  token = answer;
}

async function send(path, options, more) {
  for (let tries = 0; ; tries++) {
    let reply;
    const sent = token;
    try {
      reply = await fetch(path, { ...options, headers: headers(more), cache: 'no-store' });
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new ApiError('ebb does not answer. Is it still running?', 0);
    }
    if (reply.status !== 401 || tries > 8) return reply;
    if (sent === token) await askForToken(sent !== '');
  }
}

async function failure(reply) {
  let body = {};
  try {
    body = await reply.json();
  } catch {}
  const { message, field } = body.error || {};
  return new ApiError(message || `The server answered ${reply.status} ${reply.statusText}.`,
    reply.status, field);
}

// Seeds have 64 bits, more than a number of JavaScript keeps: they are texts in the page.
const parse = text => JSON.parse(text.replace(/("seed"\s*:\s*)(\d{16,})/g, '$1"$2"'));
const write = body => JSON.stringify(body).replace(/("seed":)"(\d+)"/g, '$1$2');

/** One request of /ebb/v1, with settings or a picture; resolves to the answer. Throws ApiError. */
export async function call(method, path, body) {
  const picture = body instanceof Blob;
  const options = { method };
  if (body !== undefined) options.body = picture ? body : write(body);
  const reply = await send(BASE + path, options,
    method === 'GET' ? {} : { 'Content-Type': picture ? body.type : 'application/json' });
  if (!reply.ok) throw await failure(reply);
  const text = await reply.text();
  return text ? parse(text) : null;
}

export async function blobOf(url) {
  const reply = await send(url, {}, {});
  if (!reply.ok) throw await failure(reply);
  return reply.blob();
}

const blobs = new WeakMap();

/** Shows the picture at `url`; with a token it is fetched, since <img> cannot send one. */
export async function setImage(img, url) {
  if (img.dataset.url === url) return;
  img.dataset.url = url;
  if (!token) {
    img.src = url;
    return;
  }
  try {
    const made = URL.createObjectURL(await blobOf(url));
    if (img.dataset.url !== url) return URL.revokeObjectURL(made);
    const old = blobs.get(img);
    blobs.set(img, made);
    img.src = made;
    if (old) URL.revokeObjectURL(old);
  } catch {
    delete img.dataset.url;
  }
}

// ---- what is known ----

export const known = { jobs: new Map(), order: [], model: null, linked: null };
const listeners = [];
export const onChange = listener => listeners.push(listener);
const changed = (type, data) => listeners.forEach(listener => listener(type, data));

export const jobsInOrder = () => known.order.map(id => known.jobs.get(id));
export const isOver = job => ['completed', 'failed', 'cancelled'].includes(job.status);

function put(job) {
  const old = known.jobs.get(job.id);
  if (!old) known.order.push(job.id);
  known.jobs.set(job.id, { ...old, ...job });
}

/** Takes a job that this page queued, which may come before or after its event. */
export function adopt(job) {
  if (!known.jobs.has(job.id)) put(job);
  changed('queued', { job: job.id });
}

/** Takes a finished job off the list. */
export function forget(id) {
  known.jobs.delete(id);
  known.order = known.order.filter(other => other !== id);
  changed('removed', { job: id });
}

function snapshot(data) {
  known.jobs.clear();
  known.order = [];
  data.jobs.forEach(put);
  known.model = data.model;
}

function apply(type, data) {
  const job = known.jobs.get(data.job);
  if (type === 'state') snapshot(data);
  else if (type === 'model') known.model = data;
  else if (data.item) put(data.item);
  else if (job && type === 'step') Object.assign(job, { status: 'generating', progress: data });
  else if (job && type === 'image' && !job.images.some(image => image.id === data.id))
    job.images.push(data);
  changed(type, data);
}

// ---- the stream ----

let lastId = '';

function link(up) {
  if (known.linked === up) return;
  known.linked = up;
  changed('link', up);
}

/** Calls `take` for each event of server-sent text; returns what is not complete yet. */
function takeEvents(text, take) {
  const parts = text.split(/\r?\n\r?\n/);
  for (const part of parts.slice(0, -1)) {
    let type = 'message', data = '';
    for (const line of part.split(/\r?\n/)) {
      const [, name, value] = /^(\w*):? ?(.*)$/.exec(line) || [];
      if (name === 'event') type = value;
      else if (name === 'data') data += value;
      else if (name === 'id') lastId = value;
    }
    if (data) take(type, parse(data));
  }
  return parts.at(-1);
}

const pause = ms => new Promise(resolve => setTimeout(resolve, ms));
const untilVisible = () => document.hidden && new Promise(resolve =>
  document.addEventListener('visibilitychange', resolve, { once: true }));

/** Reads the stream until it ends; true if it said anything. Silence of 40 s ends it too. */
async function readStream() {
  const stop = new AbortController();
  const hide = () => document.hidden && stop.abort();
  document.addEventListener('visibilitychange', hide);
  let timer, spoke = false;
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(() => stop.abort(), 40000);
  };
  try {
    alive();
    const more = lastId ? { Accept: 'text/event-stream', 'Last-Event-ID': lastId }
      : { Accept: 'text/event-stream' };
    const reply = await send(`${BASE}/events`, { signal: stop.signal }, more);
    if (!reply.ok) throw await failure(reply);
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ''; ;) {
      const { value, done } = await reader.read();
      if (done) return spoke;
      spoke = true;
      alive();
      link(true);
      text = takeEvents(text + value, apply);
    }
  } catch (error) {
    if (error.status === 401) throw error;
    return spoke;
  } finally {
    clearTimeout(timer);
    document.removeEventListener('visibilitychange', hide);
  }
}

/** Follows the server for ever: by the stream while the page is visible, else by polling. */
export async function follow() {
  for (let wait = 250, silent = 0; ;) {
    await untilVisible();
    let spoke = false;
    try {
      spoke = await readStream();
    } catch {
      await pause(5000);  // no key was given
    }
    if (document.hidden) continue;
    silent = spoke ? 0 : silent + 1;
    wait = spoke ? 250 : Math.min(wait * 2, 4000);
    if (silent < 2) {
      await pause(wait);
      if (!spoke) link(false);
      continue;
    }
    try {
      apply('state', await call('GET', '/state'));
      link(true);
      wait = 1000;
    } catch {
      link(false);
      lastId = '';
    }
    await pause(wait);
  }
}
