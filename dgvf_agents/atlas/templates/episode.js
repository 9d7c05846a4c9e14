"use strict";
(() => {
  const record = JSON.parse(document.querySelector("#record").textContent);
  const at = (id) => document.querySelector(`#${id}`);
  const screen = document.querySelector(".screen");
  const shown = screen.querySelector(".shown");
  const heat = screen.querySelector(".heat");
  const slider = at("moment");
  const chooser = at("question");
  const scores = [0];
  for (const reward of record.rewards) scores.push(scores[scores.length - 1] + reward);
  let moment = 0;
  let timer = null;

  const number = (value) => (value === null || value === undefined ? "–" : value.toFixed(3));

  function event() {
    if (moment === 0) return "start";
    const words = [record.names[record.actions[moment - 1]]];
    if (record.rewards[moment - 1]) words.push(`reward ${record.rewards[moment - 1]}`);
    if (record.ends[moment - 1]) words.push("end");
    return words.join(", ");
  }

  function nearest(drawn) {
    return drawn.reduce((best, one) => (Math.abs(one - moment) < Math.abs(best - moment) ? one : best), drawn[0]);
  }

  function look() {
    const question = record.questions[chooser.value];
    const there = question ? question.heat[moment] : undefined;
    screen.classList.toggle("dim", there !== undefined);
    heat.hidden = there === undefined;
    if (there !== undefined) heat.src = there;
    at("u").textContent = question ? number(question.u[moment]) : "–";
    at("g").textContent = question ? number(question.g[moment]) : "–";
    at("y").textContent = question ? number(question.y[moment]) : "–";
    at("note").textContent = !question || there !== undefined
      ? "" : moment === 0
        ? "Nothing arrives at the first frame: there is no cumulant." : `The gradient is not drawn here; the nearest is at step ${nearest(Object.keys(question.heat).map(Number))}.`;
    for (const card of document.querySelectorAll(".large")) {
      const chosen = card.id === `large-${chooser.value}`;
      card.classList.toggle("chosen", chosen);
      card.querySelector(".choose").textContent = chosen ? "shown on the left" : "show where it looks";
    }
  }

  function go(to) {
    moment = Math.max(0, Math.min(record.steps, to));
    slider.value = String(moment);
    shown.src = record.frames[moment];
    document.documentElement.style.setProperty("--at", String(moment / record.steps));
    at("step").textContent = String(moment);
    at("score").textContent = String(scores[moment]);
    at("event").textContent = event();
    look();
  }

  function fade() {
    document.documentElement.style.setProperty("--heat", String(at("heat").value / 100));
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    at("play").textContent = "play";
  }

  function play() {
    if (timer !== null) { stop(); return; }
    if (moment === record.steps) go(0);
    at("play").textContent = "stop";
    timer = setInterval(() => { if (moment === record.steps) stop(); else go(moment + 1); }, 1000 / 15);
  }

  function choose(question) {
    if (question === "" || question in record.questions) chooser.value = question;
    look();
  }

  function share(box, pointer) {
    const area = box.getBoundingClientRect();
    return Math.max(0, Math.min(1, (pointer.clientX - area.left) / area.width));
  }

  document.addEventListener("click", (pointer) => {
    const chart = pointer.target.closest(".chart");
    if (!chart) return;
    stop();
    if (chart.dataset.question) choose(chart.dataset.question);
    go(Math.round(share(chart, pointer) * record.steps));
  });
  at("overview").addEventListener("click", (pointer) => {
    stop();
    go(1 + Math.floor(share(at("overview"), pointer) * (record.steps - 1e-6)));
  });
  for (const button of document.querySelectorAll(".choose")) {
    button.addEventListener("click", () => choose(chooser.value === button.value ? "" : button.value));
  }
  for (const button of document.querySelectorAll(".jump")) {
    button.addEventListener("click", () => { stop(); choose(button.dataset.question); go(Number(button.value)); });
  }
  slider.addEventListener("input", () => { stop(); go(Number(slider.value)); });
  chooser.addEventListener("change", look);
  at("heat").addEventListener("input", fade);
  at("back").addEventListener("click", () => { stop(); go(moment - 1); });
  at("on").addEventListener("click", () => { stop(); go(moment + 1); });
  at("play").addEventListener("click", play);
  document.addEventListener("keydown", (key) => {
    if (key.target.closest("select, input, button")) return;
    if (key.key === "ArrowRight") { stop(); go(moment + 1); }
    if (key.key === "ArrowLeft") { stop(); go(moment - 1); }
    if (key.key === " ") { key.preventDefault(); play(); }
  });

  const sort = at("sort");
  sort.addEventListener("change", () => {
    const sign = sort.value === "number" || sort.value === "index" ? 1 : -1;
    const cards = [...document.querySelectorAll("#grid .small")];
    cards.sort((one, other) => sign * (Number(one.dataset[sort.value]) - Number(other.dataset[sort.value])));
    at("grid").append(...cards);
  });

  fade();
  const linked = /^#step-(\d+)$/.exec(location.hash);
  const first = chooser.options[1];
  if (first) chooser.value = first.value;
  const busiest = document.querySelector(".jump");
  go(linked ? Number(linked[1]) : busiest ? Number(busiest.value) : 0);
})();
