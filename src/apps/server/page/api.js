// Requests, the stream of events, and what is known of jobs and the model.
import { ask } from './dom.js';

const BASE = '/ebb/v1';
let token = '';  // in memory only
let asking = null;

/** Out of the address, which is cleaned at once. */
export function takeToken() {
  const found = /^#token=(.+)/.exec(location.hash);
  if (!found) return;
  token = decodeURIComponent(found[1]);
  history.replaceState(null, '', location.pathname);
}

export const withToken = link => link.addEventListener('click', () => {
  if (token) link.hash = `token=${encodeURIComponent(token)}`;
});

async function askForToken() {
  asking ??= ask(token ? 'That key is not right. Which key was this server started with?'
    : 'This server asks for a key.', 'Log in', true).finally(() => { asking = null; });
  token = await asking || token;
  return token;
}

async function send(path, options = {}) {
  for (;;) {
    const sent = token;
    if (sent) options.headers = { ...options.headers, Authorization: `Bearer ${sent}` };
    const reply = await fetch(path, { cache: 'no-store', ...options }).catch(error => {
      throw error.name === 'AbortError' ? error : new Error('ebb does not answer. Is it still running?');
    });
    if (reply.ok) return reply;
    if (reply.status === 401 && (sent !== token || await askForToken() !== sent)) continue;
    const { error = {} } = await reply.json().catch(() => ({}));
    throw Object.assign(new Error(error.message || `The server answered ${reply.status}.`),
      { field: error.field });
  }
}

const parse = text => JSON.parse(text.replace(/("seed"\s*:\s*)(\d{16,})/g, '$1"$2"'));
const write = body => JSON.stringify(body).replace(/("seed":)"(\d+)"/g, '$1$2');

/** Resolves to the answer. Throws Error with its `field`. */
export async function call(method, path, body) {
  const picture = body instanceof Blob;
  const reply = await send(BASE + path, { method, body: picture || !body ? body : write(body),
    headers: method === 'GET' ? {} : { 'Content-Type': picture ? body.type : 'application/json' } });
  return parse(await reply.text() || 'null');
}

export const blobOf = async url => (await send(url)).blob();

export const dropBlob = img => img.src.startsWith('blob:') && URL.revokeObjectURL(img.src);

/** <img> cannot send a token. */
export async function setImage(img, url) {
  if (img.dataset.url === url) return;
  img.dataset.url = url;
  const made = token ? URL.createObjectURL(await blobOf(url)) : url;
  if (img.dataset.url !== url) return;
  dropBlob(img);
  img.src = made;
}

export const known = { jobs: new Map(), model: null, linked: null };
const listeners = [];
export const onChange = listener => listeners.push(listener);
const changed = (type, data) => listeners.forEach(listener => listener(type, data));

const put = job => known.jobs.set(job.id, { ...known.jobs.get(job.id), ...job });

/** Its event may have come before. */
export function adopt(job) {
  if (!known.jobs.has(job.id)) put(job);
  changed('queued', { job: job.id });
}

export function forget(id) {
  known.jobs.delete(id);
  changed('forgotten', {});
}

function apply(type, data) {
  const job = known.jobs.get(data.job);
  if (type === 'state') {
    known.jobs = new Map(data.jobs.map(item => [item.id, item]));
    known.model = data.model;
  } else if (type === 'model') known.model = data;
  else if (data.item) put(data.item);
  else if (job && type === 'step') Object.assign(job, { status: 'generating', progress: data });
  else if (job && type === 'image' && !job.images.some(image => image.id === data.id))
    job.images.push(data);
  changed(type, data);
}

let lastId = '';

function link(up, fault) {
  if (known.linked === up) return;
  known.linked = up;
  changed('link', { up, fault });
}

/** Applies complete events; returns the rest. */
function takeEvents(text) {
  const events = text.split('\n\n');
  for (const event of events.slice(0, -1)) {
    const fields = Object.fromEntries(event.split('\n').map(line => line.split(/: ?([^]*)/)));
    lastId = fields.id || lastId;
    if (fields.data) apply(fields.event, parse(fields.data));
  }
  return events.at(-1);
}

const pause = ms => new Promise(resolve => setTimeout(resolve, ms));

/** Until it ends, is silent for 40 s, or the page is hidden; true if it spoke. */
async function readStream() {
  const stop = new AbortController();
  let timer, spoke = false;
  const hide = () => document.hidden && stop.abort();
  document.addEventListener('visibilitychange', hide);
  const listen = () => {
    clearTimeout(timer);
    timer = setTimeout(() => stop.abort(), 40000);
  };
  try {
    listen();
    const reply = await send(`${BASE}/events`, { signal: stop.signal,
      headers: lastId ? { 'Last-Event-ID': lastId } : {} });
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = '', part; !(part = await reader.read()).done;) {
      spoke = true;
      listen();
      link(true);
      text = takeEvents(text + part.value);
    }
  } catch {
  } finally {
    clearTimeout(timer);
    document.removeEventListener('visibilitychange', hide);
  }
  return spoke;
}

/** By polling where streams do not come through. */
export async function follow() {
  for (let silent = 0; ;) {
    if (document.hidden) await new Promise(resolve =>
      document.addEventListener('visibilitychange', resolve, { once: true }));
    silent = await readStream() ? 0 : silent + 1;
    if (document.hidden) continue;
    if (silent) await call('GET', '/state').then(state => {
      apply('state', state);
      link(true);
    }, error => {
      link(false, error.message);
      lastId = '';
    });
    await pause(Math.min(300 * (silent + 1), 3000));
  }
}
