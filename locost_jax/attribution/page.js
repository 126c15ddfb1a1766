'use strict';
// The page can be read without this. It adds: choosing whose attention the
// strip shows, and the place of the reader on it.
const data = JSON.parse(document.getElementById('data').textContent);
const all = (selector) => [...document.querySelectorAll(selector)];
const cells = all('.map svg a');
const chips = all('.chips a');
const sentences = all('.summary p:first-of-type a');
const here = document.querySelector('.here');

// which: 0, the whole summary; n, its sentence n.
function show(which) {
  const row = data.rows[which];
  const most = Math.max(...row.mass, 1e-9);
  cells.forEach((cell, i) => {
    const n = row.passage[i];
    const text = document.querySelector('#p' + n + ' > span').textContent;
    cell.setAttribute('href', '#p' + n);
    cell.firstElementChild.textContent = `\u00b6 ${n}: ` + text.slice(0, 90);
    cell.lastElementChild.setAttribute(
        'fill-opacity', ((row.mass[i] / most) ** 0.7).toFixed(3));
  });
  chips.forEach((chip, i) => chip.classList.toggle('on', i === which));
  sentences.forEach(
      (sentence, i) => sentence.classList.toggle('on', i + 1 === which));
  all('.run p.on').forEach((p) => p.classList.remove('on'));
  for (const n of row.top) {
    document.getElementById('p' + n).classList.add('on');
  }
}

chips.forEach((chip, i) => chip.addEventListener('click', (event) => {
  event.preventDefault();
  show(i);
}));
sentences.forEach((sentence, i) => sentence.addEventListener(
    'click', () => show(i + 1)));
window.addEventListener('hashchange', showNamed);
function showNamed() {
  const match = /^#s(\d+)$/.exec(location.hash);
  if (match && data.rows[match[1]]) show(Number(match[1]));
}

let waiting = false;
function place() {
  waiting = false;
  const box = document.querySelector('.document').getBoundingClientRect();
  const y = innerHeight / 2;
  here.hidden = box.top > y || box.bottom < y;
  if (here.hidden) return;
  const x = Math.min(innerWidth - 1, box.left + box.width / 3);
  const p = document.elementsFromPoint(x, y).find((e) => e.matches(
      '.run p'));
  if (p) here.style.left = 100 * data.starts[p.id.slice(1) - 1] + '%';
}
addEventListener('scroll', () => {
  if (!waiting) requestAnimationFrame(place);
  waiting = true;
}, {passive: true});

show(0);
showNamed();
place();
document.documentElement.dataset.ready = 'yes';
