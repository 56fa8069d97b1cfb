// The picture that a run starts from, how far it is extended, and its mask with its editor.
import { $, el, on, show, setText, doing, base64Of, announce } from './dom.js';
import { setImage } from './api.js';
import { readInputSettings, refreshSettings } from './settings.js';

const LARGEST = 1536;                  // pixels of a side; larger pictures are made smaller
const SIDES = ['left', 'right', 'top', 'bottom'];
let start = null;                      // {id or blob, url, width, height, note}
let extend = [0, 0, 0, 0];
let mask = null;                       // a canvas of the picture's size: opaque is made anew

const load = (img, url) => new Promise((resolve, reject) => {
  img.onload = resolve;
  img.onerror = () => reject(new Error('This is no picture that the browser can read.'));
  img.src = url;
});

const canvasOf = (width, height) => el('canvas', { width, height });
const blobOfCanvas = canvas => new Promise(resolve => canvas.toBlob(resolve, 'image/png'));

/** Makes a canvas hold what `draw` draws instead. */
function redrawn(canvas, draw) {
  const context = canvas.getContext('2d');
  context.clearRect(0, 0, canvas.width, canvas.height);
  draw(context);
}

// ---- the start picture ----

/** Takes a file as the start picture; one that is too large is made smaller. */
export async function takeInputFile(file) {
  const img = new Image();
  const url = URL.createObjectURL(file);
  await load(img, url);
  const scale = Math.min(1, LARGEST / Math.max(img.naturalWidth, img.naturalHeight));
  const plain = scale === 1 && /^image\/(png|jpeg|webp)$/.test(file.type);
  if (plain) return takeInput({ blob: file, url, width: img.naturalWidth, height: img.naturalHeight });
  const canvas = canvasOf(Math.round(img.naturalWidth * scale), Math.round(img.naturalHeight * scale));
  canvas.getContext('2d').drawImage(img, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(url);
  const blob = await blobOfCanvas(canvas);
  takeInput({ blob, url: URL.createObjectURL(blob), width: canvas.width, height: canvas.height,
    note: scale < 1 ? `made smaller, from ${img.naturalWidth} × ${img.naturalHeight}` : '' });
}

/** Takes a picture of the gallery: {id, url, width, height}. */
export async function takeInputImage({ id, url, width, height }) {
  takeInput({ id, url, width, height });
}

function takeInput(picture) {
  dropInput();
  start = picture;
  setImage($('input-image'), picture.url);
  $('input-group').open = true;
  draw();
  announce('Start picture taken');
}

function dropInput() {
  if (start?.blob) URL.revokeObjectURL(start.url);
  start = mask = null;
  extend = [0, 0, 0, 0];
}

function draw() {
  show('input-empty', !start);
  show('input-some', !!start);
  show('mask-drop', !!mask);
  show('extend-none', extend.some(Boolean));
  $('input-some').dataset.masked = mask || extend.some(Boolean) ? 'yes' : 'no';
  setText($('mask-open'), mask ? 'Change the mask…' : 'Paint a mask…');
  const overlay = $('input-mask');
  overlay.hidden = !mask;
  if (mask) drawOverlay(overlay, mask);
  if (start) drawExtension();
  setText($('input-sum'), !start ? 'off' : [`${start.width} × ${start.height}`,
    mask && 'with a mask', extend.some(Boolean) && 'extended'].filter(Boolean).join(', '));
  refreshSettings();
}

function drawExtension() {
  const [left, right, top, bottom] = extend;
  const added = SIDES.map((side, i) => extend[i] && `${extend[i]} ${side}`).filter(Boolean);
  const text = added.length ? `Adds ${added.join(', ')}: ${start.width + left + right} × `
    + `${start.height + top + bottom} pixels.` : start.note && `The picture is ${start.note}.`;
  show('extend-text', !!text);
  setText($('extend-text'), text || '');
}

/** Adds about a quarter on a side (0 to 3, as SIDES). */
function extendBy(side) {
  const length = side < 2 ? start.width : start.height;
  extend[side] += Math.max(64, Math.round(length / 4 / 64) * 64);
  draw();
}

/** The part of a job that starts from the picture; {} where there is none. */
export async function inputOfJob() {
  if (!start) return {};
  const masked = !!mask || extend.some(Boolean);
  const out = { ...readInputSettings(masked) };
  out.init = start.id ? `id:${start.id}` : await base64Of(start.blob);
  if (mask) out.mask = await base64Of(await blobOfCanvas(exported(mask)));
  if (extend.some(Boolean)) out.outpaint = extend.join(',');
  return out;
}

export const hasInput = () => !!start;

export function buildInput() {
  on('input-choose', 'click', () => $('input-file').click());
  on('input-file', 'change', doing(async event => {
    const [file] = event.target.files;
    event.target.value = '';
    if (file) await takeInputFile(file);
  }));
  on('input-remove', 'click', () => {
    dropInput();
    draw();
    $('input-choose').focus();
  });
  on('mask-open', 'click', doing(openEditor));
  on('mask-drop', 'click', () => {
    mask = null;
    draw();
    $('mask-open').focus();
  });
  for (const button of document.querySelectorAll('[data-side]'))
    button.addEventListener('click', () => extendBy(+button.dataset.side));
  on('extend-none', 'click', () => {
    extend = [0, 0, 0, 0];
    draw();
    document.querySelector('[data-side]').focus();
  });
  buildEditor();
  draw();
}

// ---- the mask ----

/** White where the picture is made anew, black elsewhere. */
function exported(from) {
  const canvas = canvasOf(from.width, from.height);
  const context = canvas.getContext('2d');
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(from, 0, 0);
  return canvas;
}

/** Draws the mask in a colour that pictures seldom have; the style makes it transparent. */
function tinted(context, from) {
  context.drawImage(from, 0, 0);
  context.globalCompositeOperation = 'source-in';
  context.fillStyle = '#e0218a';
  context.fillRect(0, 0, from.width, from.height);
  context.globalCompositeOperation = 'source-over';
}

function drawOverlay(canvas, from) {
  Object.assign(canvas, { width: from.width, height: from.height });
  tinted(canvas.getContext('2d'), from);
}

// What was done, oldest first; undo draws the mask again without the last. Each draws onto the
// mask's context, where opaque white is painted and transparent is not.
let actions = [], undone = [];
let tool = { erase: false, size: 64 };
let brush = { x: 0, y: 0 };            // in pixels of the picture, moved by keys
let stroke = null;

const covered = context => {
  context.fillStyle = '#fff';
  context.fillRect(0, 0, context.canvas.width, context.canvas.height);
};
const invert = context => {
  context.globalCompositeOperation = 'source-out';
  covered(context);
};
const fill = covered;
const clear = context => context.clearRect(0, 0, context.canvas.width, context.canvas.height);
const rectangle = ({ x, y, w, h, erase }) => context => {
  context.globalCompositeOperation = erase ? 'destination-out' : 'source-over';
  context.fillStyle = '#fff';
  context.fillRect(x, y, w, h);
};
const line = ({ points, size, erase }) => context => {
  context.globalCompositeOperation = erase ? 'destination-out' : 'source-over';
  Object.assign(context, { lineWidth: size, lineCap: 'round', lineJoin: 'round', strokeStyle: '#fff' });
  context.beginPath();
  context.moveTo(...points[0]);
  for (const point of points) context.lineTo(...point);
  context.stroke();
};

const edited = canvasOf(1, 1);

function run(action) {
  const context = edited.getContext('2d', { willReadFrequently: true });
  context.save();
  action(context);
  context.restore();
}

function drawEditor() {
  redrawn(edited, () => actions.forEach(run));
  if (stroke) run(line(stroke));
  const canvas = $('mask-canvas');
  redrawn(canvas, context => {
    tinted(context, edited);
    if (document.activeElement !== canvas) return;
    context.lineWidth = Math.max(2, canvas.width / 400);
    for (const [style, more] of [['#000', 0], ['#fff', context.lineWidth]]) {
      context.strokeStyle = style;
      context.beginPath();
      context.arc(brush.x, brush.y, tool.size / 2 + more, 0, 7);
      context.stroke();
    }
  });
  $('mask-undo').disabled = !actions.length;
  $('mask-redo').disabled = !undone.length;
}

function act(action, said) {
  actions.push(action);
  undone = [];
  drawEditor();
  setText($('mask-said'), `${said}. ${share()} % of the picture is painted.`);
}

function share() {
  const small = canvasOf(64, 64);
  small.getContext('2d').drawImage(edited, 0, 0, 64, 64);
  const { data } = small.getContext('2d').getImageData(0, 0, 64, 64);
  let sum = 0;
  for (let i = 3; i < data.length; i += 4) sum += data[i];
  return Math.round(sum / 64 / 64 / 2.55);
}

function step(from, to, said) {
  if (!from.length) return;
  to.push(from.pop());
  drawEditor();
  setText($('mask-said'), `${said}. ${share()} % of the picture is painted.`);
}
const undo = () => step(actions, undone, 'Undone');
const redo = () => step(undone, actions, 'Done again');

async function openEditor() {
  const { width, height } = start;
  for (const canvas of [edited, $('mask-canvas')]) Object.assign(canvas, { width, height });
  $('mask-image').src = $('input-image').src;
  actions = mask ? [(old => context => context.drawImage(old, 0, 0))(mask)] : [];
  undone = [];
  brush = { x: width / 2, y: height / 2 };
  $('mask-size').max = Math.max(width, height) / 2;
  setSize(Math.round(Math.max(width, height) / 10));
  setText($('mask-said'), '');
  $('masker').showModal();
  $('mask-canvas').focus();
  drawEditor();
}

function closeEditor() {
  mask = null;
  if (isPainted()) {
    mask = canvasOf(edited.width, edited.height);
    mask.getContext('2d').drawImage(edited, 0, 0);
  }
  draw();
  $('mask-open').focus();
}

const isPainted = () => {
  const { data } = edited.getContext('2d').getImageData(0, 0, edited.width, edited.height);
  for (let i = 3; i < data.length; i += 4) if (data[i]) return true;
  return false;
};

function setSize(size) {
  tool.size = Math.min(Math.max(1, size), +$('mask-size').max);
  $('mask-size').value = tool.size;
  drawEditor();
}

function setErase(erase) {
  tool.erase = erase;
  $('mask-brush').setAttribute('aria-pressed', !erase);
  $('mask-eraser').setAttribute('aria-pressed', erase);
}

const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function editorKey(event) {
  const { key, ctrlKey, metaKey, shiftKey, target } = event;
  if (/number|file/.test(target.type)) return;
  const canvas = $('mask-canvas');
  if ((ctrlKey || metaKey) && /^[zy]$/i.test(key)) key === 'y' || shiftKey ? redo() : undo();
  else if (ctrlKey || metaKey) return;
  else if (key === '[' || key === ']') setSize(Math.round(tool.size * (key === '[' ? 0.8 : 1.25)));
  else if (key === 'x') setErase(!tool.erase);
  else if (target === canvas && MOVES[key]) {
    const far = shiftKey ? tool.size : Math.max(1, tool.size / 8);
    brush.x = Math.min(Math.max(0, brush.x + MOVES[key][0] * far), canvas.width);
    brush.y = Math.min(Math.max(0, brush.y + MOVES[key][1] * far), canvas.height);
    drawEditor();
  } else if (target === canvas && (key === ' ' || key === 'Enter'))
    act(line({ points: [[brush.x, brush.y]], ...tool }), tool.erase ? 'Erased' : 'Painted');
  else return;
  event.preventDefault();
}

function pointOf(event) {
  const canvas = $('mask-canvas'), box = canvas.getBoundingClientRect();
  return [(event.clientX - box.left) * canvas.width / box.width,
    (event.clientY - box.top) * canvas.height / box.height];
}

function buildPointer() {
  const canvas = $('mask-canvas');
  const move = event => {
    if (!stroke) return;
    for (const part of event.getCoalescedEvents?.() || []) stroke.points.push(pointOf(part));
    stroke.points.push(pointOf(event));
    drawEditor();
  };
  const end = () => {
    if (!stroke) return;
    const done = stroke;
    stroke = null;
    act(line(done), done.erase ? 'Erased' : 'Painted');
  };
  canvas.addEventListener('pointerdown', event => {
    if (event.button) return;
    canvas.setPointerCapture(event.pointerId);
    stroke = { points: [pointOf(event)], ...tool };
    drawEditor();
  });
  canvas.addEventListener('pointermove', event => {
    [brush.x, brush.y] = pointOf(event);
    stroke ? move(event) : drawEditor();
  });
  canvas.addEventListener('pointerup', end);
  canvas.addEventListener('pointercancel', end);
  for (const event of ['focus', 'blur']) canvas.addEventListener(event, drawEditor);
}

/** A mask from a file: its light and opaque parts are painted. */
async function maskFromFile(file) {
  const img = new Image(), url = URL.createObjectURL(file);
  await load(img, url);
  const made = canvasOf(edited.width, edited.height);
  const context = made.getContext('2d');
  context.drawImage(img, 0, 0, made.width, made.height);
  URL.revokeObjectURL(url);
  const pixels = context.getImageData(0, 0, made.width, made.height);
  const { data } = pixels;
  for (let i = 0; i < data.length; i += 4) {
    const light = 0.299 * data[i] + 0.587 * data[i + 1] + 0.114 * data[i + 2];
    data[i + 3] = light * data[i + 3] / 255;
    data[i] = data[i + 1] = data[i + 2] = 255;
  }
  context.putImageData(pixels, 0, 0);
  act(onto => {
    clear(onto);
    onto.drawImage(made, 0, 0);
  }, 'Taken from the file');
}

function buildEditor() {
  on('mask-done', 'click', () => $('masker').close());
  $('masker').addEventListener('close', closeEditor);
  $('masker').addEventListener('keydown', editorKey);
  on('mask-brush', 'click', () => setErase(false));
  on('mask-eraser', 'click', () => setErase(true));
  on('mask-size', 'input', event => setSize(+event.target.value));
  on('mask-undo', 'click', undo);
  on('mask-redo', 'click', redo);
  on('mask-invert', 'click', () => act(invert, 'Inverted'));
  on('mask-fill', 'click', () => act(fill, 'Filled'));
  on('mask-clear', 'click', () => act(clear, 'Cleared'));
  on('mask-file', 'click', () => $('mask-file-input').click());
  on('mask-file-input', 'change', doing(async event => {
    const [file] = event.target.files;
    event.target.value = '';
    if (file) await maskFromFile(file);
  }));
  const number = id => Number($(id).value) || 0;
  const addRectangle = erase => act(rectangle({ x: number('rect-x'), y: number('rect-y'),
    w: number('rect-w'), h: number('rect-h'), erase }), erase ? 'Erased' : 'Painted');
  on('rect-add', 'click', () => addRectangle(false));
  on('rect-cut', 'click', () => addRectangle(true));
  buildPointer();
}
