// Elements, messages and questions. Text reaches the page as text nodes only.

export const $ = id => document.getElementById(id);

/** An element; `props` are properties, attributes where there is no such property, or onEvent. */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'class') node.className = value;
    else if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.filter(child => child != null && child !== false));
  return node;
}

export const on = (id, event, handler) => $(id).addEventListener(event, handler);
export const show = (id, visible) => { $(id).hidden = !visible; };

/** Sets text only where it differs, so that live regions do not speak twice. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function announce(text) {
  $('said').textContent = '';
  requestAnimationFrame(() => { $('said').textContent = text; });
}

/** A message in the corner. Errors stay until they are closed. */
export function toast(text, { error = false, action, act } = {}) {
  const box = el('div', { class: error ? 'toast bad' : 'toast', role: error ? 'alert' : 'status' },
    el('p', {}, text));
  const close = () => box.remove();
  if (action) box.append(el('button', { type: 'button', onclick: () => { close(); act(); } }, action));
  box.append(el('button', { type: 'button', class: 'quiet', 'aria-label': 'Close this message',
    onclick: close }, '✕'));
  for (const old of $('toasts').children)
    if (old.firstChild.textContent === text) old.remove();
  $('toasts').append(box);
  while ($('toasts').children.length > 4) $('toasts').firstChild.remove();
  if (!error) setTimeout(close, action ? 12000 : 6000);
}

export const complain = error => toast(error.message || String(error), { error: true });

/** Runs `work` of a click; a failure becomes a message. */
export const doing = work => async event => {
  try {
    await work(event);
  } catch (error) {
    complain(error);
  }
};

/** Asks; resolves to true or false, or with `secret` to a text or null. */
export function ask(text, yes, secret = false) {
  const dialog = $('ask');
  if (dialog.open) return Promise.resolve(secret ? null : false);
  $('ask-text').textContent = text;
  $('ask-yes').textContent = yes;
  $('ask-value').value = '';
  show('ask-field', secret);
  return new Promise(resolve => {
    let answer = secret ? null : false;
    $('ask-yes').onclick = () => {
      answer = secret ? $('ask-value').value.trim() : true;
      dialog.close();
    };
    $('ask-no').onclick = () => dialog.close();
    $('ask-value').onkeydown = event => { if (event.key === 'Enter') $('ask-yes').click(); };
    dialog.onclose = () => resolve(answer);
    dialog.showModal();
    (secret ? $('ask-value') : $('ask-yes')).focus();
  });
}

/** Calls `work` once, at the next frame, however often it is asked. */
export function perFrame(work) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; work(); });
  };
}

export function bytesText(n) {
  return n >= 1e9 ? `${(n / 1e9).toFixed(1)} GB` : `${Math.round(n / 1e6)} MB`;
}

export function secondsText(s) {
  if (s < 1) return 'less than a second left';
  if (s < 90) return `${Math.round(s)} s left`;
  return `${Math.round(s / 60)} min left`;
}

/** The bytes of a file or blob as base64, without a prefix. */
export function base64Of(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(',') + 1));
    reader.onerror = () => reject(new Error('The file cannot be read.'));
    reader.readAsDataURL(blob);
  });
}
