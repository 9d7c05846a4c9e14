"use strict";
(() => {
  const record = JSON.parse(document.querySelector("#record").textContent);
  const at = (id) => document.querySelector(`#${id}`);
  const grid = at("grid");
  const questions = [...grid.querySelectorAll(".question")];
  const sort = at("sort");
  const kind = at("kind");
  const dialog = document.querySelector("dialog");
  const content = dialog.querySelector(".content");
  const shown = () => [...grid.querySelectorAll(".question:not([hidden])")];
  const number = (value) => (value === null || value === undefined ? "–" : value.toPrecision(3));

  function nearest(x, y, allowed) {
    let best = -1;
    let least = Infinity;
    for (let state = 0; state < record.x.length; state++) {
      const distance = (record.x[state] - x.at) ** 2 * x.scale + (record.y[state] - y.at) ** 2 * y.scale;
      if (distance < least && allowed(state)) { least = distance; best = state; }
    }
    return best;
  }

  function tell(map, state) {
    if (state < 0) return;
    let cursor = map.querySelector(".cursor");
    if (!cursor) {
      cursor = document.createElement("i");
      cursor.className = "cursor";
      map.append(cursor);
    }
    cursor.style.left = `${record.x[state]}%`;
    cursor.style.top = `${record.y[state]}%`;
    map.dataset.state = String(state);
    const value = record.values[map.dataset.quantity][map.dataset.row][state];
    map.closest(".plot").querySelector(".readout").textContent = `${record.names[state]}: ${number(value)}`;
  }

  function pointed(event) {
    const map = event.target.closest(".map");
    if (!map) return;
    const box = map.getBoundingClientRect();
    const x = { at: (100 * (event.clientX - box.left)) / box.width, scale: box.width ** 2 };
    const y = { at: (100 * (event.clientY - box.top)) / box.height, scale: box.height ** 2 };
    tell(map, nearest(x, y, () => true));
  }

  const directions = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };

  function moved(event) {
    const map = event.target.closest(".map");
    const direction = directions[event.key];
    if (!map || !direction) return;
    event.preventDefault();
    event.stopPropagation();
    if (map.dataset.state === undefined) { tell(map, 0); return; }
    const here = Number(map.dataset.state);
    const box = map.getBoundingClientRect();
    const ahead = (state) => {
      const right = (record.x[state] - record.x[here]) * box.width;
      const down = (record.y[state] - record.y[here]) * box.height;
      const along = right * direction[0] + down * direction[1];
      return along > 1e-6 && along >= Math.abs(right * direction[1] + down * direction[0]);
    };
    tell(map, nearest({ at: record.x[here], scale: box.width ** 2 }, { at: record.y[here], scale: box.height ** 2 }, ahead));
  }

  function go() {
    const step = Number(at("moment").value);
    const state = record.points[step];
    at("agent").style.left = `${record.x[state]}%`;
    at("agent").style.top = `${record.y[state]}%`;
    at("step").textContent = String(step);
    document.documentElement.style.setProperty("--at", String(step / (record.points.length - 1)));
    const { u, g, y, came } = record.lines;
    const reward = step > 0 ? `, reward ${record.rewards[step - 1]}` : "";
    at("told").textContent = `${record.names[state]}${reward}: cumulant ${number(u[step])}, discount ${number(g[step])}, `
      + `answer ${number(y[step])}, observed return ${number(came[step])}`;
  }

  function arrange() {
    const key = sort.value;
    const sign = key === "number" || key === "index" ? 1 : -1;
    questions.sort((one, other) => sign * (Number(one.dataset[key]) - Number(other.dataset[key])));
    for (const question of questions) {
      question.hidden = kind.value !== "all" && question.dataset.kind !== kind.value;
      grid.append(question);
    }
  }

  function open(question) {
    const detail = question.querySelector("template").content.cloneNode(true);
    detail.querySelector("img").src = question.querySelector("img").src;
    content.replaceChildren(detail);
    dialog.dataset.number = question.dataset.number;
    if (!dialog.open) dialog.showModal();
  }

  function neighbor(step) {
    const all = shown();
    const place = all.findIndex((question) => question.dataset.number === dialog.dataset.number);
    open(all[(place + step + all.length) % all.length]);
  }

  function openLinked() {
    const match = /^#question-(\d+)$/.exec(location.hash);
    const question = match && grid.querySelector(`[data-number="${match[1]}"]`);
    if (question) open(question);
  }

  window.addEventListener("hashchange", openLinked);
  document.addEventListener("pointermove", pointed);
  document.addEventListener("pointerdown", pointed);
  document.addEventListener("keydown", moved, true);
  at("moment").addEventListener("input", go);
  sort.addEventListener("change", arrange);
  kind.addEventListener("change", arrange);
  grid.addEventListener("click", (event) => {
    const question = event.target.closest(".question");
    if (question) open(question);
  });
  for (const button of document.querySelectorAll("button.number")) {
    button.addEventListener("click", () => open(grid.querySelector(`[data-number="${button.value}"]`)));
  }
  dialog.querySelector(".close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest("a.term")) dialog.close();
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight") neighbor(1);
    if (event.key === "ArrowLeft") neighbor(-1);
  });
  go();
  openLinked();
})();
