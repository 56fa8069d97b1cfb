// The picture that a run starts from, how far it is extended, and its mask with its editor.
import { $, el, on, onFile, show, setText, announce } from './dom.js';
import { setImage } from './api.js';
import { readInputSettings, refreshSettings } from './form.js';

const LARGEST = 1536;  // pixels of a side
const SIDES = ['left', 'right', 'top', 'bottom'];
let start = null;
let extend = [0, 0, 0, 0];
let mask = null;  // a canvas: opaque is made anew

const canvasOf = (width, height) => el('canvas', { width, height });
const contextOf = canvas => canvas.getContext('2d', { willReadFrequently: true });
const blobOf = canvas => new Promise(resolve => canvas.toBlob(resolve, 'image/png'));

async function canvasOfFile(file, largest, like) {
  const image = await createImageBitmap(file).catch(() => {
    throw new Error(`${file.name || 'This'} is no picture that the browser can read.`);
  });
  const scale = Math.min(1, largest / Math.max(image.width, image.height));
  const canvas = like ? canvasOf(like.width, like.height)
    : canvasOf(Math.round(image.width * scale), Math.round(image.height * scale));
  contextOf(canvas).drawImage(image, 0, 0, canvas.width, canvas.height);
  return { canvas, note: scale < 1 ? `The picture is made smaller, from ${image.width} × ${image.height}.` : '' };
}

const base64Of = blob => new Promise(resolve => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result.split(',')[1]);
  reader.readAsDataURL(blob);
});

export async function takeInputFile(file) {
  const { canvas, note } = await canvasOfFile(file, LARGEST);
  const blob = !note && /png|jpeg|webp/.test(file.type) ? file : await blobOf(canvas);
  takeInput({ blob, url: URL.createObjectURL(blob), width: canvas.width, height: canvas.height, note });
}

/** Takes {id or blob, url, width, height}, or null: none. */
export function takeInput(picture) {
  if (start?.blob) URL.revokeObjectURL(start.url);
  start = picture;
  mask = null;
  extend = [0, 0, 0, 0];
  if (start) setImage($('input-image'), start.url).catch(() => {});
  $('input-group').open ||= start;
  announce(start ? 'Start picture taken' : 'Start picture removed');
  draw();
}

function draw() {
  const extended = extend.some(Boolean);
  show('input-empty', !start);
  show('input-some', start);
  show('mask-drop', mask);
  show('extend-none', extended);
  show('input-mask', mask);
  $('input-some').dataset.masked = mask || extended ? 'yes' : '';
  setText($('mask-open'), mask ? 'Change the mask…' : 'Paint a mask…');
  if (mask) tinted($('input-mask'), mask);
  const [left, right, top, bottom] = extend;
  setText($('extend-text'), extended ? `Adds ${SIDES.map((side, i) => extend[i] && `${extend[i]} ${side}`)
    .filter(Boolean).join(', ')}: ${start.width + left + right} × ${start.height + top + bottom} pixels.`
    : start?.note || '');
  setText($('input-sum'), !start ? 'off' : [`${start.width} × ${start.height}`,
    mask && 'mask', extended && 'extended'].filter(Boolean).join(', '));
  refreshSettings();
}

export async function inputOfJob() {
  if (!start) return {};
  const extended = extend.some(Boolean), from = start, shape = mask;
  const out = { ...readInputSettings(mask || extended), ...extended && { outpaint: extend.join() } };
  out.init = from.id ? `id:${from.id}` : await base64Of(from.blob);
  if (shape) out.mask = await base64Of(await blobOf(exported(shape)));
  return out;
}

export function buildInput() {
  onFile('input', takeInputFile);
  on('input-remove', 'click', () => {
    takeInput(null);
    $('input').focus();
  });
  on('mask-open', 'click', openEditor);
  on('mask-drop', 'click', () => {
    mask = null;
    draw();
    $('mask-open').focus();
  });
  document.querySelectorAll('[data-side]').forEach((node, side) => node.addEventListener('click', () => {
    const length = side < 2 ? start.width : start.height;
    extend[side] += Math.max(64, Math.round(length / 4 / 64) * 64);
    draw();
  }));
  on('extend-none', 'click', () => {
    extend = [0, 0, 0, 0];
    draw();
    document.querySelector('[data-side]').focus();
  });
  buildEditor();
  draw();
}

/** White where painted, else black. */
function exported(from) {
  const canvas = canvasOf(from.width, from.height), context = contextOf(canvas);
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(from, 0, 0);
  return canvas;
}

function tinted(canvas, from) {
  Object.assign(canvas, { width: from.width, height: from.height });
  const context = contextOf(canvas);
  context.drawImage(from, 0, 0);
  context.globalCompositeOperation = 'source-in';
  all(context, '#e0218a');
  context.globalCompositeOperation = 'source-over';
  return context;
}

// What was done, oldest first: each draws white where it is painted.
let actions = [], undone = [], stroke = null;
let erase = false, size = 64;
let brush = [0, 0];  // in pixels of the picture, also moved by keys
const edited = canvasOf(1, 1);

function all(context, colour = '#fff') {
  context.fillStyle = colour;
  context.fillRect(0, 0, edited.width, edited.height);
}
const clear = context => context.clearRect(0, 0, edited.width, edited.height);
const invert = context => {
  context.globalCompositeOperation = 'source-out';
  all(context);
};
const drawn = (by, erase) => context => {
  context.globalCompositeOperation = erase ? 'destination-out' : 'source-over';
  context.fillStyle = context.strokeStyle = '#fff';
  by(context);
};
const line = ({ points, size, erase }) => drawn(context => {
  Object.assign(context, { lineWidth: size, lineCap: 'round', lineJoin: 'round' });
  context.beginPath();
  context.moveTo(points[0][0] + 0.01, points[0][1]);  // no length is not drawn
  for (const point of points) context.lineTo(...point);
  context.stroke();
}, erase);

function drawEditor() {
  const context = contextOf(edited), canvas = $('mask-canvas');
  clear(context);
  for (const action of stroke ? [...actions, line(stroke)] : actions) {
    context.save();
    action(context);
    context.restore();
  }
  const shown = tinted(canvas, edited);
  for (const [style, more] of [['#000', 0], ['#fff', 2]]) {
    Object.assign(shown, { strokeStyle: style, lineWidth: 2 });
    shown.beginPath();
    shown.arc(...brush, size / 2 + more, 0, 7);
    shown.stroke();
  }
}

function share() {
  const { data } = contextOf(edited).getImageData(0, 0, edited.width, edited.height);
  let sum = 0;
  for (let i = 3; i < data.length; i += 4) sum += data[i];
  return sum / data.length / 63.75;
}

function did(text) {
  drawEditor();
  setText($('mask-said'), `${text}. ${Math.round(share() * 100)} % of the picture is painted.`);
}

function act(action, text) {
  actions.push(action);
  undone = [];
  did(text);
}

function step(from, to, text) {
  if (from.length) to.push(from.pop());
  else text = 'Nothing is left';
  did(text);
}
const undo = () => step(actions, undone, 'Undone');
const redo = () => step(undone, actions, 'Done again');

function openEditor() {
  const { width, height } = start, old = mask;
  Object.assign(edited, { width, height });
  $('mask-image').src = $('input-image').src;
  actions = old ? [context => context.drawImage(old, 0, 0)] : [];
  undone = [];
  brush = [width / 2, height / 2];
  $('mask-size').max = Math.max(width, height) / 2;
  setText($('mask-said'), '');
  $('masker').showModal();
  $('mask-canvas').focus();
  setSize(Math.max(width, height) / 10);
}

function closeEditor() {
  mask = share() ? canvasOf(edited.width, edited.height) : null;
  if (mask) contextOf(mask).drawImage(edited, 0, 0);
  draw();
  $('mask-open').focus();
}

function setSize(wanted) {
  size = Math.round(Math.min(Math.max(1, wanted), $('mask-size').max));
  $('mask-size').value = size;
  drawEditor();
}

function setErase(wanted) {
  erase = wanted;
  $('mask-brush').ariaPressed = !erase;
  $('mask-eraser').ariaPressed = erase;
}

const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function editorKey(event) {
  const { key, shiftKey, target } = event, control = event.ctrlKey || event.metaKey;
  const painting = target.id === 'mask-canvas' && !control;
  if (target.type === 'number') return;
  if (control && /^[zy]$/i.test(key)) key === 'y' || shiftKey ? redo() : undo();
  else if (control) return;
  else if (key === '[' || key === ']') setSize(size * (key === '[' ? 0.8 : 1.25));
  else if (key === 'x') setErase(!erase);
  else if (painting && MOVES[key]) {
    const far = shiftKey ? size : Math.max(1, size / 8), ends = [edited.width, edited.height];
    brush = brush.map((at, i) => Math.min(Math.max(0, at + MOVES[key][i] * far), ends[i]));
    drawEditor();
  } else if (painting && (key === ' ' || key === 'Enter'))
    act(line({ points: [brush], size, erase }), erase ? 'Erased' : 'Painted');
  else return;
  event.preventDefault();
}

function buildPointer(canvas) {
  const move = event => {
    const box = canvas.getBoundingClientRect();
    brush = [(event.clientX - box.left) * canvas.width / box.width,
      (event.clientY - box.top) * canvas.height / box.height];
    stroke?.points.push(brush);
    drawEditor();
  };
  const end = () => {
    if (!stroke) return;
    const done = line(stroke);
    stroke = null;
    act(done, erase ? 'Erased' : 'Painted');
  };
  canvas.addEventListener('pointerdown', event => {
    canvas.setPointerCapture(event.pointerId);
    stroke = { points: [], size, erase };
    move(event);
  });
  canvas.addEventListener('pointermove', move);
  canvas.addEventListener('pointerup', end);
  canvas.addEventListener('pointercancel', end);
}

async function maskFromFile(file) {
  const { canvas } = await canvasOfFile(file, 0, edited), context = contextOf(canvas);
  const pixels = context.getImageData(0, 0, canvas.width, canvas.height), { data } = pixels;
  for (let i = 0; i < data.length; i += 4) {
    const light = 0.299 * data[i] + 0.587 * data[i + 1] + 0.114 * data[i + 2];
    data.set([255, 255, 255, light * data[i + 3] / 255], i);
  }
  context.putImageData(pixels, 0, 0);
  act(onto => {
    clear(onto);
    onto.drawImage(canvas, 0, 0);
  }, 'Taken from the file');
}

function buildEditor() {
  on('masker', 'close', closeEditor);
  on('masker', 'keydown', editorKey);
  on('mask-brush', 'click', () => setErase(false));
  on('mask-eraser', 'click', () => setErase(true));
  on('mask-size', 'input', event => setSize(+event.target.value));
  on('mask-undo', 'click', undo);
  on('mask-redo', 'click', redo);
  on('mask-invert', 'click', () => act(invert, 'Inverted'));
  on('mask-fill', 'click', () => act(context => all(context), 'Filled'));
  on('mask-clear', 'click', () => act(clear, 'Cleared'));
  onFile('mask', maskFromFile);
  const rectangle = (erase, text) => () => {
    const sides = ['x', 'y', 'w', 'h'].map(id => +$(`rect-${id}`).value);
    act(drawn(context => context.fillRect(...sides), erase), text);
  };
  on('rect-add', 'click', rectangle(false, 'Painted'));
  on('rect-cut', 'click', rectangle(true, 'Erased'));
  buildPointer($('mask-canvas'));
}
