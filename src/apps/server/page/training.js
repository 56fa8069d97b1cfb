// The page of training: runs of `ebb train`, asked for every few seconds while it is looked at.
import { $, el, on, setText, show, announce } from './dom.js';
import { call, setImage, takeToken, withToken } from './api.js';

const EVERY = 3000;                   // ms
let runs = [], run = null;            // the list, and the one that is shown in full
let viewed = 0;                       // the picture in the viewer, of run.samples
const states = new Map();             // by id, as they were told

const svg = (tag, props, ...children) => {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(props)) node.setAttribute(name, value);
  node.append(...children);
  return node;
};

const short = value => value == null ? '–' : String(+value.toPrecision(4));
const whole = value => value.toLocaleString('en');

function timeText(s) {
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${(s / 3600).toFixed(1)} h` : `${(s / 86400).toFixed(1)} days`;
}

const stateOf = ({ running, step, steps }) => running ? 'running'
  : steps && step >= steps ? 'finished' : 'ended';
const stepText = ({ step, steps }) => `step ${whole(step)}${steps ? ` of ${whole(steps)}` : ''}`;
const speedText = r => !r.steps_per_second ? '–'
  : r.steps_per_second < 1 ? `${short(1 / r.steps_per_second)} s a step`
  : `${short(r.steps_per_second)} steps a second`;

// ---- the list ----

const note = text => el('span', { className: 'note' }, text);
const pressed = (work, props, ...children) => el('button', { type: 'button', onclick: work, ...props }, ...children);

const rowOf = ({ id }) => el('li', {},
  pressed(() => choose(id), { id: `run-${id}` }, el('b', {}), note(''), note('')));

function drawList() {
  const list = $('list'), before = document.activeElement;
  const rows = runs.map(({ id }) => $(`run-${id}`)?.parentNode || rowOf({ id }));
  for (const row of [...list.children]) if (!rows.includes(row)) row.remove();
  rows.forEach((row, i) => {
    if (list.children[i] !== row) list.insertBefore(row, list.children[i] || null);
    const node = row.firstChild, one = runs[i], state = stateOf(one);
    const [name, now, rest] = node.children;
    setText(name, one.name);
    name.className = state;
    setText(now, [state, stepText(one), `loss ${short(one.smoothed_loss)}`].join(' · '));
    setText(rest, [speedText(one), one.eta_s != null && `${timeText(one.eta_s)} left`].filter(Boolean).join(' · '));
    rest.hidden = !one.running;
    if (one.id === run?.id) node.setAttribute('aria-current', 'true');
    else node.removeAttribute('aria-current');
  });
  if (before !== document.activeElement && before.isConnected) before.focus();
}

function tellChanges() {
  for (const one of runs) {
    const state = stateOf(one), before = states.get(one.id);
    if (before && before !== state) announce(`${one.name} is ${state}`);
    states.set(one.id, state);
  }
}

// ---- the curve ----

/** About `count` round numbers from `low` to `high`. */
function ticks(low, high, count) {
  const rough = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(n => n * power).find(n => n >= rough), out = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) out.push(+(i * step).toPrecision(6));
  return out;
}

/** 1, 2 and 5 times powers of ten; of many, the powers alone. */
function logTicks(low, high) {
  const out = [];
  for (let p = Math.floor(Math.log10(low)); 10 ** p <= high; p++)
    for (const n of [1, 2, 5]) out.push(+(n * 10 ** p).toPrecision(1));
  const inside = out.filter(v => v >= low * 0.999 && v <= high * 1.001);
  return inside.length > 7 ? inside.filter(v => /^1(0*|e.*)$|^0?\.?0*1$/.test(String(v))) : inside;
}

const finite = points => points.filter(point => point.every(Number.isFinite));

function curves() {
  const isLog = $('log').checked;
  const all = ['loss', 'validation'].map(name =>
    finite(run.curve[name]).filter(([, , least]) => !isLog || least > 0));
  return { isLog, loss: all[0], validation: all[1] };
}

function drawCurve() {
  const { isLog, loss, validation } = curves(), node = $('curve');
  const width = node.clientWidth, height = node.clientHeight;
  node.setAttribute('viewBox', `0 0 ${width} ${height}`);
  node.ariaLabel = describe(loss, validation);
  node.replaceChildren();
  if (!loss.length || !width) return;
  const left = 56, right = 26, top = 14, bottom = 42, points = [...loss, ...validation];
  const steps = points.map(([step]) => step);
  const [first, last] = [Math.min(...steps), Math.max(...steps)];
  // Means alone set the scale: one early outlier would flatten all that follows.
  const values = points.map(([, mean]) => mean);
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (high === low) [low, high] = isLog ? [low / 2, high * 2] : [low - 0.5, high + 0.5];
  else if (!isLog) [low, high] = [low - 0.04 * (high - low), high + 0.04 * (high - low)];
  const scale = isLog ? Math.log : v => v;
  const x = step => left + (width - left - right) * (last > first ? (step - first) / (last - first) : 0.5);
  const y = value => {
    const share = (scale(value) - scale(low)) / (scale(high) - scale(low));
    return top + (height - top - bottom) * (1 - Math.max(-0.02, Math.min(share, 1.02)));
  };
  const line = (list, at = 1) => list.map(point => `${x(point[0]).toFixed(1)} ${y(point[at]).toFixed(1)}`).join('L');
  for (const value of isLog ? logTicks(low, high) : ticks(low, high, 5))
    node.append(svg('path', { class: 'tick', d: `M${left} ${y(value)}H${width - right}` }),
      svg('text', { x: left - 6, y: y(value) + 4, 'text-anchor': 'end' }, String(value)));
  for (const step of ticks(first, last, Math.min(8, (width - left) / 70)))
    if (Number.isInteger(step)) node.append(svg('path', { class: 'tick', d: `M${x(step)} ${height - bottom}v5` }),
      svg('text', { x: x(step), y: height - bottom + 19, 'text-anchor': 'middle' }, whole(step)));
  node.append(svg('path', { class: 'range', d: `M${line(loss, 2)}L${line([...loss].reverse(), 3)}Z` }),
    svg('path', { class: 'loss', d: `M${line(loss)}h.1` }));
  if (validation.length) node.append(svg('path', { class: 'validation', d: `M${line(validation)}h.1` }));
  node.append(svg('text', { x: (left + width - right) / 2, y: height - 6, 'text-anchor': 'middle' }, 'Step'),
    svg('text', { x: 0, y: 0, 'text-anchor': 'middle', transform: `translate(13 ${(top + height - bottom) / 2}) rotate(-90)` },
      isLog ? 'Loss, logarithmic' : 'Loss'));
}

/** What the curve shows, in words. */
function describe(loss, validation) {
  if (!loss.length) return 'There is no loss yet.';
  const least = loss.reduce((a, b) => b[1] < a[1] ? b : a), [first, last] = [loss[0], loss.at(-1)];
  return `Loss over steps: ${short(first[1])} at step ${whole(first[0])}, ${short(last[1])} at step ${whole(last[0])}; `
    + `least ${short(least[1])} at step ${whole(least[0])}.`
    + (validation.length ? ` Validation loss ${short(validation.at(-1)[1])} at step ${whole(validation.at(-1)[0])}.` : '');
}

function drawTable() {
  const { loss } = curves(), rows = Math.min(12, loss.length);
  const chosen = [...Array(rows).keys()].map(i => loss[Math.round(i * (loss.length - 1) / Math.max(rows - 1, 1))]);
  $('values').replaceChildren(...chosen.map(([step, ...values]) =>
    el('tr', {}, ...[whole(step), ...values.map(short)].map(text => el('td', {}, text)))));
}

// ---- the run ----

function drawFacts() {
  const { settings, facts } = run;
  const shown = {
    Speed: speedText(run), Pictures: run.images_per_second && `${short(run.images_per_second)} a second`,
    Left: run.eta_s != null && timeText(run.eta_s), Trained: timeText(run.seconds),
    'Loss, mean of last steps': short(run.smoothed_loss), 'Last step\'s loss': short(run.loss),
    Validation: run.validation && `${short(run.validation.loss)} at step ${whole(run.validation.step)}`,
    'Learning rate': short(run.lr), 'Gradient norm': short(run.grad_norm), Batch: settings.batch,
    Model: settings.model,
    Weights: [facts.trained_parameters, facts.parameters].filter(Boolean).map(whole).join(' of '),
    Device: facts.device, Started: facts.started,
  };
  const known = Object.entries(shown).filter(([, text]) => text);
  known.forEach(([name, text], i) => {
    const node = $('facts').children[i] || $('facts').appendChild(el('div', {}, el('dt', {}), el('dd', {})));
    setText(node.firstChild, name);
    setText(node.lastChild, String(text));
  });
  for (const node of [...$('facts').children].slice(known.length)) node.remove();
}

function drawSamples() {
  const { samples } = run;
  show('samples-none', !samples.length);
  const old = new Map([...$('samples').children].map(node => [node.dataset.url, node]));
  const nodes = samples.map(({ step, url }, i) => old.get(url) || sampleOf(step, url, i));
  for (const [, node] of old) if (!nodes.includes(node)) node.remove();
  nodes.forEach((node, i) => {
    if ($('samples').children[i] !== node) $('samples').insertBefore(node, $('samples').children[i] || null);
  });
}

function sampleOf(step, url) {
  const img = el('img', { alt: `Samples of step ${whole(step)}`, loading: 'lazy' });
  setImage(img, url).catch(() => {});
  const node = el('li', {}, pressed(() => view(run.samples.findIndex(sample => sample.url === url)), {},
    img, note(`Step ${whole(step)}`)));
  node.dataset.url = url;
  return node;
}

function drawRun() {
  const percent = run.steps ? Math.min(100, Math.floor(100 * run.step / run.steps)) : 0, bar = $('progress');
  const state = stateOf(run), ago = Date.now() / 1e3 - run.changed;
  setText($('name'), run.name);
  show('progress', run.steps);
  bar.ariaValueNow = percent;
  bar.firstChild.style.width = `${percent}%`;
  bar.ariaValueText = stepText(run);
  setText($('progress-text'), [state, stepText(run), run.steps && `${percent} %`,
    ago > 20 && `last line ${timeText(ago)} ago`].filter(Boolean).join(' · '));
  document.title = `${run.steps && run.running ? `${percent} % · ` : ''}${run.name} · ebb`;
  setText($('notes'), [run.read < 1 && `Reading its metrics: ${Math.floor(100 * run.read)} %.`,
    run.damaged && `${run.damaged === 1 ? 'One line' : `${whole(run.damaged)} lines`} of metrics.jsonl cannot be read.`]
    .filter(Boolean).join(' '));
  const each = run.curve.steps_a_point;
  setText($('legend'), (each > 1 ? `Line: mean of ${whole(each)} steps; shade: least to greatest.` : 'Line: loss of each step.')
    + (run.curve.validation.length ? ' Dashes: validation loss.' : ''));
  drawFacts();
  drawCurve();
  drawTable();
  drawSamples();
}

function view(index) {
  const sample = run.samples[index];
  if (!sample) return;
  viewed = sample.url;
  setImage($('view-image'), sample.url).catch(() => {});
  $('view-image').alt = `Samples of step ${whole(sample.step)}`;
  setText($('view-title'), `${run.name}, step ${whole(sample.step)}`);
  $('view-newer').disabled = !index;
  $('view-older').disabled = index === run.samples.length - 1;
  if (!$('viewer').open) $('viewer').showModal();
}

const walk = by => view(run.samples.findIndex(({ url }) => url === viewed) + by);

// ---- asking ----

async function refresh() {
  const found = await call('GET', '/training');
  runs = found.runs;
  const wanted = runs.find(({ id }) => id === location.hash.slice(1)) || runs[0];
  run = wanted ? await call('GET', `/training/${wanted.id}`) : null;
  show('none', !runs.length);
  setText($('none'), found.folders ? 'There are no runs yet in the folders of --runs. A run begins with ebb train.'
    : 'Start ebb serve with --runs FOLDER to see the runs of ebb train in it.');
  show('run', run);
  tellChanges();
  drawList();
  if (run) drawRun();
  return runs.every(one => one.read === 1) ? EVERY : 100;
}

let timer = 0, asking = null;

/** One at a time, and none while the page is hidden. */
function follow() {
  clearTimeout(timer);
  if (document.hidden) return;
  asking ??= refresh().then(wait => {
    show('banner', false);
    return wait;
  }, error => {
    setText($('banner'), `${error.message} Trying again.`);
    show('banner', true);
    return EVERY;
  }).then(wait => {
    asking = null;
    if (!document.hidden) timer = setTimeout(follow, wait);
  });
}

function choose(id) {
  history.replaceState(null, '', `#${id}`);
  Promise.resolve(asking).then(follow);
}

takeToken();
withToken($('home'));
on('log', 'change', () => run && drawRun());
on('view-newer', 'click', () => walk(-1));
on('view-older', 'click', () => walk(1));
on('viewer', 'keydown', event => {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (by) walk(by);
});
addEventListener('resize', () => run && drawCurve());
document.addEventListener('visibilitychange', follow);
follow();
