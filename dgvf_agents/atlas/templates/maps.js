"use strict";
(() => {
  const grid = document.querySelector("#grid");
  const questions = [...grid.querySelectorAll(".question")];
  const sort = document.querySelector("#sort");
  const kind = document.querySelector("#kind");
  const dialog = document.querySelector("dialog");
  const content = dialog.querySelector(".content");
  const shown = () => [...grid.querySelectorAll(".question:not([hidden])")];

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
    const at = all.findIndex((question) => question.dataset.number === dialog.dataset.number);
    open(all[(at + step + all.length) % all.length]);
  }

  function openLinked() {
    const match = /^#question-(\d+)$/.exec(location.hash);
    const question = match && grid.querySelector(`[data-number="${match[1]}"]`);
    if (question) open(question);
  }

  window.addEventListener("hashchange", openLinked);
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
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight") neighbor(1);
    if (event.key === "ArrowLeft") neighbor(-1);
  });
  openLinked();
})();
