// Elements, messages and questions. Text reaches the page as text nodes only.

export const $ = id => document.getElementById(id);
export const on = (id, event, handler) => $(id).addEventListener(event, handler);
export const show = (id, visible) => { $(id).hidden = !visible; };

/** `props`: properties, else attributes, or onEvent. */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

export const button = (text, work, props) => el('button', { type: 'button', onclick: work, ...props }, text);

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function announce(text) {
  $('said').textContent = '';
  requestAnimationFrame(() => setText($('said'), text));
}

export function toast(text, { error, action, act } = {}) {
  const close = () => box.remove();
  const box = el('div', { className: error ? 'toast bad' : 'toast', role: error ? 'alert' : 'status' },
    el('p', {}, text));
  if (action) box.append(button(action, () => { close(); act(); }));
  box.append(button('✕', close, { className: 'quiet', ariaLabel: 'Close this message' }));
  for (const old of $('toasts').children) if (old.firstChild.textContent === text) old.remove();
  $('toasts').append(box);
  (document.querySelector('dialog[open]') || document.body).append($('toasts'));
  if (!error) setTimeout(close, action ? 12000 : 6000);
}

export const complain = error => toast(error.message, { error: true });

/** `work` whose failure becomes a message. */
export const doing = work => async event => {
  try {
    await work(event);
  } catch (error) {
    complain(error);
  }
};

export function onFile(id, take) {
  const input = $(`${id}-file`);
  on(id, 'click', () => input.click());
  input.addEventListener('change', doing(async () => {
    const [file] = input.files;
    input.value = '';
    if (file) await take(file);
  }));
}

/** Resolves to true or false, or with `secret` to a text. */
export function ask(text, yes, secret = false) {
  const dialog = $('ask'), value = $('ask-value');
  setText($('ask-text'), text);
  setText($('ask-yes'), yes);
  value.value = '';
  show('ask-field', secret);
  return new Promise(resolve => {
    let agreed = false;
    $('ask-yes').onclick = () => {
      agreed = true;
      dialog.close();
    };
    value.onkeydown = event => { if (event.key === 'Enter') $('ask-yes').click(); };
    dialog.onclose = () => resolve(secret ? agreed && value.value.trim() : agreed);
    dialog.showModal();
    (secret ? value : $('ask-yes')).focus();
  });
}

addEventListener('close', () => document.body.append($('toasts')), true);
addEventListener('click', ({ target }) => 'close' in target.dataset && target.closest('dialog').close());

export function perFrame(work) {
  let waiting = false;
  return () => {
    if (!waiting) requestAnimationFrame(() => { waiting = false; work(); });
    waiting = true;
  };
}
