// Looks at every frame once all are laid out and writes what it saw into the document, as JSON.
"use strict";

const SLACK = 1.5;

function brightness(color) {
  const parts = color.match(/[\d.]+/g).slice(0, 3).map((part) => {
    const share = Number(part) / 255;
    return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
}

function contrast(one, other) {
  const [high, low] = [brightness(one), brightness(other)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}

function excerpt(element) {
  return `${element.tagName.toLowerCase()} "${element.textContent.trim().slice(0, 40)}"`;
}

// A closed <details> has no boxes inside; opening all makes everything visible.
function openAll(page) {
  for (const details of page.querySelectorAll("details")) details.open = true;
}

function pageFlaws(page) {
  const root = page.documentElement;
  return root.scrollWidth > root.clientWidth
    ? [`the page is ${root.scrollWidth} wide in ${root.clientWidth}`] : [];
}

// Boxes whose text must not stick out; tables and programs scroll in boxes of their own.
function boxFlaws(page) {
  const flaws = [];
  for (const element of page.querySelectorAll("h1, h2, h3, p, li, dt, dd, a, figcaption, summary, th, td")) {
    const box = element.getBoundingClientRect();
    if (box.width === 0) continue;
    const inline = getComputedStyle(element).display === "inline";
    if (!inline && element.scrollWidth > element.clientWidth + SLACK) flaws.push(`${excerpt(element)} sticks out of its box`);
  }
  return flaws;
}

function chartFlaws(page) {
  const flaws = [];
  for (const chart of page.querySelectorAll("svg.chart")) {
    const around = chart.getBoundingClientRect();
    if (around.width === 0) continue;
    const name = chart.querySelector("title").textContent;
    const parent = chart.parentElement.getBoundingClientRect();
    if (around.right > parent.right + SLACK) flaws.push(`chart "${name}" is wider than its column`);
    for (const part of chart.querySelectorAll("path, text")) {
      const box = part.getBoundingClientRect();
      const outside = box.left < around.left - SLACK || box.right > around.right + SLACK
        || box.top < around.top - SLACK || box.bottom > around.bottom + SLACK;
      if (outside) flaws.push(`chart "${name}": ${excerpt(part)} lies outside`);
    }
    flaws.push(...overlaps(chart, name));
  }
  return flaws;
}

function overlaps(chart, name) {
  const texts = [...chart.querySelectorAll("text")].map((text) => [text, text.getBoundingClientRect()]);
  const flaws = [];
  texts.forEach(([text, box], index) => {
    for (const [other, place] of texts.slice(index + 1)) {
      const across = Math.min(box.right, place.right) - Math.max(box.left, place.left);
      const down = Math.min(box.bottom, place.bottom) - Math.max(box.top, place.top);
      // line boxes are taller than letters
      if (across > SLACK && down > 4) flaws.push(`chart "${name}": ${excerpt(text)} overlaps ${excerpt(other)}`);
    }
  });
  return flaws;
}

function colourFlaws(page) {
  const paper = getComputedStyle(page.body).backgroundColor;
  const flaws = [];
  for (const line of page.querySelectorAll("svg .line")) {
    const stroke = getComputedStyle(line).stroke;
    if (contrast(stroke, paper) < 3) flaws.push(`a line of ${stroke} on ${paper}`);
  }
  for (const element of page.querySelectorAll("p, td, th, a, dt, summary, text, .flag")) {
    const style = getComputedStyle(element);
    const ink = element.tagName === "text" ? style.fill : style.color;
    const frame = element.closest("svg.flame") && element.previousElementSibling;
    if (frame) {
      if (contrast(ink, getComputedStyle(frame).fill) < 4.5) flaws.push(`${excerpt(element)} on its frame`);
      continue;
    }
    const least = element.classList.contains("flag") ? 3 : 4.5;
    if (contrast(ink, paper) < least) flaws.push(`${excerpt(element)} in ${ink} on ${paper}`);
  }
  return [...new Set(flaws)];
}

function look(frame) {
  const page = frame.contentDocument;
  openAll(page);
  const seen = [...page.querySelectorAll("svg.chart")].filter((chart) => chart.getBoundingClientRect().width > 0);
  return {
    charts: seen.length,
    dark: brightness(getComputedStyle(page.body).backgroundColor) < 0.2,
    flaws: [...pageFlaws(page), ...boxFlaws(page), ...chartFlaws(page), ...colourFlaws(page)].slice(0, 20),
  };
}

addEventListener("load", () => {
  const sheets = [...document.querySelectorAll("iframe")].map(look);
  const seen = document.createElement("pre");
  seen.id = "seen";
  seen.textContent = JSON.stringify(sheets);
  document.body.replaceChildren(seen);
});
