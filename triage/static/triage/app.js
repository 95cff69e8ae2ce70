// What the pages gain from scripts: keys, copying, drag and drop, jumps without a reload.
// Everything here improves a link or a form that works without it.
(() => {
  "use strict";
  const root = document.documentElement;
  root.classList.add("scripts");
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const one = (selector, within = document) => within.querySelector(selector);

  // ---- Colours ----------------------------------------------------------------------------------
  const THEMES = ["", "dark", "light"];
  const THEME_WORDS = { "": "Auto", dark: "Dark", light: "Light" };
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("[data-theme-switch]")) return;
    event.preventDefault();
    const theme = THEMES[(THEMES.indexOf(root.dataset.theme || "") + 1) % THEMES.length];
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    const secure = location.protocol === "https:" ? "; Secure" : "";
    document.cookie = `theme=${theme}; Path=/; Max-Age=${theme ? 31536000 : 0}; SameSite=Lax${secure}`;
    one(".theme-word", event.target).textContent = THEME_WORDS[theme];
  });

  // ---- Copying ----------------------------------------------------------------------------------
  async function copy(button) {
    const source = document.getElementById(button.dataset.copy);
    if (!source) return;
    const said = button.textContent;
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      // No clipboard here (plain http): select the text, so that one key copies it.
      getSelection().selectAllChildren(source);
      button.textContent = "Press Ctrl-C";
    }
    setTimeout(() => { button.textContent = said; }, 1600);
  }

  // ---- Times in the reader's zone -----------------------------------------------------------------
  // The zone of the profile, else this browser's, which the server learns by a cookie.
  const zone = root.dataset.timeZone || Intl.DateTimeFormat().resolvedOptions().timeZone;
  const inZone = zone ? { hourCycle: "h23", timeZone: zone } : { hourCycle: "h23" };
  if (zone && !root.dataset.timeZone && !document.cookie.includes(`time_zone=${zone}`)) {
    const secure = location.protocol === "https:" ? "; Secure" : "";
    document.cookie = `time_zone=${zone}; Path=/; Max-Age=31536000; SameSite=Lax${secure}`;
  }

  function localTimes(within) {
    for (const time of all("time[datetime]", within)) {
      const moment = new Date(time.dateTime);
      if (Number.isNaN(moment.getTime()) || time.title) continue;
      time.title = moment.toLocaleString(undefined, { dateStyle: "full", timeStyle: "long", ...inZone });
      if (time.dataset.show === "clock") {
        time.textContent = moment.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", ...inZone });
      } else if (time.dataset.show === "day") {
        time.textContent = moment.toLocaleDateString(undefined, { dateStyle: "medium", timeZone: zone });
      } else if (time.dataset.show === "stamp") {
        time.textContent = moment.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short", ...inZone });
      }
    }
  }

  // ---- The log ------------------------------------------------------------------------------------
  const LINE_LINK = /^#T(\d+)-L(\d+)$/;

  // ---- Timers -----------------------------------------------------------------------------------
  function tick() {
    all("[data-timer-since]").forEach((timer) => {
      const seconds = Math.max(0, Math.floor((Date.now() - Date.parse(timer.dataset.timerSince)) / 1000));
      const two = (number) => String(number).padStart(2, "0");
      timer.textContent = `${Math.floor(seconds / 3600)}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
    });
  }

  function wrapLines() {
    const wrap = sessionStorage.getItem("wrap") === "yes";
    all(".log .lines").forEach((lines) => lines.classList.toggle("wrap", wrap));
    all("[data-wrap]").forEach((button) => button.setAttribute("aria-pressed", String(wrap)));
  }

  function showLine(anchor, { focus = false } = {}) {
    const line = document.getElementById(anchor);
    if (!line) return false;
    all(".lines li.target, .lines li.arrived").forEach((l) => l.classList.remove("target", "arrived"));
    line.classList.add("target");
    line.scrollIntoView({ block: "center", inline: "start" });
    const scroller = line.closest(".lines");
    if (scroller) scroller.scrollLeft = 0;
    requestAnimationFrame(() => line.classList.add("arrived"));
    if (focus) one(".line-no", line)?.focus({ preventScroll: true });
    return true;
  }

  // Shows the line that was asked for, or the first evidence, or the end, without moving the page.
  function placeLog() {
    const scroller = one("#log .lines");
    if (!scroller) return;
    const line = one("li.target, li.first-evidence", scroller);
    if (line) {
      const above = line.getBoundingClientRect().top - scroller.getBoundingClientRect().top;
      scroller.scrollTop += above - scroller.clientHeight / 3;
    } else if ("atEnd" in scroller.dataset) {
      scroller.scrollTop = scroller.scrollHeight;
    }
    const tabs = one("#log .tabs");
    const tab = tabs && one("[aria-current]", tabs);
    if (tab) tabs.scrollLeft = tab.offsetLeft - tabs.clientWidth / 3;
  }

  function goToLine(text, line, { remember = true } = {}) {
    const anchor = `T${text}-L${line}`;
    if (remember) history.replaceState(history.state, "", `#${anchor}`);
    markCurrentEvidence(anchor);
    if (showLine(anchor, { focus: true })) return;
    const log = document.getElementById("log");
    if (!log) return;
    const address = new URL(log.dataset.address, location.href);
    address.searchParams.set("text", text);
    address.searchParams.set("line", line);
    htmx.ajax("GET", address.pathname + address.search, { target: "#log", swap: "outerHTML" })
      .then(() => showLine(anchor, { focus: true }));
  }

  const evidenceLinks = () => all("a[data-evidence]");
  let currentEvidence = -1;

  function markCurrentEvidence(anchor) {
    evidenceLinks().forEach((link, index) => {
      const here = link.hash === `#${anchor}`;
      link.classList.toggle("current", here);
      if (here) currentEvidence = index;
    });
  }

  function stepEvidence(step) {
    const links = evidenceLinks();
    if (!links.length) return;
    currentEvidence = currentEvidence < 0 && step < 0 ? links.length - 1
      : (currentEvidence + step + links.length) % links.length;
    const [, text, line] = links[currentEvidence].hash.match(LINE_LINK);
    goToLine(text, line);
  }

  function followHash() {
    const found = location.hash.match(LINE_LINK);
    if (found && document.getElementById("log")) goToLine(found[1], found[2], { remember: false });
  }

  // ---- The triage form ----------------------------------------------------------------------------
  const PASTE_AS_FILE_BYTES = 8 * 2 ** 20;
  const MAX_FILES = 4096;
  const SNIFFED_BYTES = 2 ** 18;

  const people = (bytes) => bytes < 1000 ? `${bytes} bytes`
    : bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB`
    : bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(2)} GB`;
  const count = (number, word) => `${number.toLocaleString()} ${word}${number === 1 ? "" : "s"}`;

  function kindOf(text) {
    const ranks = new Set();
    for (const found of text.matchAll(/\[(?:default|rank|RANK |Rank )(\d{1,5})\]|^(\d{1,4}): /gm)) {
      ranks.add(found[1] ?? found[2]);
      if (ranks.size > 4096) break;
    }
    const kinds = [
      [/torch\.distributed\.(?:run|elastic|launch)|torchrun|ChildFailedError/, "torchrun"],
      [/RayTrainWorker|ray\.train/, "Ray"],
      [/\bslurmstepd\b|\bsrun\b/, "Slurm"],
      [/^Thread (?:0x|\d).*(?:most recent call first|idle|active)|^#\d+\s+0x/m, "stack dump"],
      [/^\[\s*\d+\.\d{6}\]/m, "kernel log"],
      [/Traceback \(most recent call last\)/, "Python traceback"],
      [/NCCL (?:INFO|WARN)|ProcessGroupNCCL/, "NCCL"],
    ].filter(([pattern]) => pattern.test(text)).map(([, word]) => word);
    return [ranks.size > 1 ? `${ranks.size} ranks` : "", ...kinds.slice(0, 2)].filter(Boolean);
  }

  function triageForm(form) {
    const box = one("textarea", form);
    const picker = one("input[type=file]", form);
    const drop = one(".drop", form);
    const kind = one("[data-kind]", form);
    const list = one(".chosen", form);
    const bar = one("progress", form);
    let latest = 0;

    async function describe() {
      const turn = ++latest;
      const parts = [];
      const files = [...picker.files];
      const text = box.value;
      let bytes = 0;
      let sample = text.slice(0, SNIFFED_BYTES) + "\n" + text.slice(SNIFFED_BYTES).slice(-SNIFFED_BYTES);
      if (text.trim()) {
        bytes += new Blob([text]).size;
        parts.push(count(text.split("\n").length - (text.endsWith("\n") ? 1 : 0), "line"));
      }
      for (const file of files) bytes += file.size;
      if (files.length) parts.unshift(count(files.length, "file"));
      try {
        for (const file of files.slice(0, 8)) {
          sample += "\n" + await file.slice(0, SNIFFED_BYTES).text();
          sample += "\n" + await file.slice(Math.max(SNIFFED_BYTES, file.size - SNIFFED_BYTES)).text();
        }
      } catch {
        // A folder or a file that went away: the server will say so.
      }
      if (turn !== latest) return;
      kind.textContent = bytes ? [...kindOf(sample), ...parts, people(bytes)].join(" · ") : "";
      list.replaceChildren(...files.slice(0, 200).map((file, index) => {
        const row = document.createElement("li");
        const name = document.createElement("span");
        name.className = "name";
        name.textContent = file.webkitRelativePath || file.name;
        const size = document.createElement("span");
        size.className = "number muted";
        size.textContent = people(file.size);
        const remove = document.createElement("button");
        remove.type = "button";
        remove.className = "quiet small";
        remove.textContent = "Remove";
        remove.setAttribute("aria-label", `Remove ${file.name}`);
        remove.addEventListener("click", () => setFiles(files.filter((_, other) => other !== index)));
        row.append(name, size, remove);
        return row;
      }));
      list.hidden = !files.length;
    }

    function setFiles(files) {
      const carrier = new DataTransfer();
      files.slice(0, MAX_FILES).forEach((file) => carrier.items.add(file));
      picker.files = carrier.files;
      describe();
    }

    async function filesOf(entry) {
      if (entry.isFile) return [await new Promise((done, fail) => entry.file(done, fail))];
      const reader = entry.createReader();
      const found = [];
      for (;;) {
        const batch = await new Promise((done, fail) => reader.readEntries(done, fail));
        if (!batch.length || found.length > MAX_FILES) return found;
        for (const child of batch) found.push(...await filesOf(child));
      }
    }

    drop.addEventListener("dragover", (event) => {
      if (![...event.dataTransfer.types].includes("Files")) return;
      event.preventDefault();
      drop.classList.add("over");
    });
    drop.addEventListener("dragleave", () => drop.classList.remove("over"));
    drop.addEventListener("drop", async (event) => {
      drop.classList.remove("over");
      const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
      const plain = [...event.dataTransfer.files];
      if (!plain.length && !entries.length) return;
      event.preventDefault();
      const dropped = entries.length ? (await Promise.all(entries.map(filesOf))).flat() : plain;
      setFiles([...picker.files, ...dropped]);
    });
    box.addEventListener("paste", (event) => {
      const files = [...event.clipboardData.files];
      if (!files.length) return;
      event.preventDefault();
      setFiles([...picker.files, ...files]);
    });
    let typing;
    box.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(describe, 80); });
    picker.addEventListener("change", describe);
    form.addEventListener("htmx:configRequest", (event) => {
      if (event.target !== form || box.value.length < PASTE_AS_FILE_BYTES) return;
      // A paste this long goes as a file, which has room for it.
      event.detail.formData.append("uploads", new File([box.value], "pasted.log", { type: "text/plain" }));
      event.detail.formData.set("text", "");
    });
    form.addEventListener("htmx:beforeRequest", (event) => {
      if (event.target !== form) return;
      one("button.primary", form).disabled = true;
    });
    form.addEventListener("htmx:afterRequest", (event) => {
      if (event.target !== form) return;
      bar.hidden = true;
      if (event.detail.xhr.getResponseHeader("HX-Redirect")) return;
      one("button.primary", form).disabled = false;
      if (event.detail.failed && !event.detail.xhr.response) {
        const problem = one("#form-problem");
        problem.innerHTML = '<p class="notice error" role="alert"></p>';
        problem.firstChild.textContent = "The text did not reach Pitstop. It is still here: press Diagnose again.";
      }
    });
    form.addEventListener("htmx:xhr:progress", (event) => {
      if (!event.detail.lengthComputable || event.detail.total < 2e6) return;
      bar.hidden = false;
      bar.max = event.detail.total;
      bar.value = event.detail.loaded;
    });
    describe();
    window.addEventListener("pageshow", () => {
      one("button.primary", form).disabled = false;
      describe();
    });
  }

  // ---- The list of incidents ----------------------------------------------------------------------
  const picks = () => all('[name="pick"]');

  function countPicked() {
    const said = one("[data-picked]");
    if (!said) return;
    const picked = picks().filter((box) => box.checked).length;
    said.textContent = picked ? `${picked} picked` : "None picked";
    const every = one("[data-pick-all]");
    every.checked = picked > 0 && picked === picks().length;
    every.indeterminate = picked > 0 && !every.checked;
  }

  function stepRow(step) {
    const rows = all("a[data-row]");
    if (!rows.length) return;
    const here = rows.findIndex((link) => link.closest("tr").contains(document.activeElement));
    const next = here < 0 ? (step > 0 ? 0 : rows.length - 1) : here + step;
    rows[Math.max(0, Math.min(rows.length - 1, next))].focus();
  }

  function pickRow() {
    const box = one('[name="pick"]', document.activeElement.closest("tr") || document.createElement("tr"));
    if (!box) return;
    box.checked = !box.checked;
    countPicked();
  }

  // A control that carries its key: a menu opens, a field is focused, a button pressed.
  function pressKey(key) {
    const control = one(`[data-key="${CSS.escape(key)}"]`);
    if (!control) return false;
    if (control.matches("textarea, input")) control.focus();
    else control.click();
    if (control.matches("summary")) {
      control.focus();
      one(".sheet input:not([type=hidden]), .sheet button", control.parentElement)?.focus();
    }
    return true;
  }

  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-pick-all]")) picks().forEach((box) => { box.checked = event.target.checked; });
    countPicked();
  });
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("[data-filters]")) return;
    // Only what is filtered stands in the address.
    const empty = [...event.target.elements].filter((field) => field.name && !field.value);
    empty.forEach((field) => { field.disabled = true; });
    setTimeout(() => empty.forEach((field) => { field.disabled = false; }));
  });

  // ---- Events ---------------------------------------------------------------------------------------
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.dataset.copy) copy(button);
    if (button?.matches("[data-wrap]")) {
      sessionStorage.setItem("wrap", sessionStorage.getItem("wrap") === "yes" ? "no" : "yes");
      wrapLines();
    }
    all(".drop-down[open]").forEach((menu) => { if (!menu.contains(event.target)) menu.open = false; });
    const link = event.target.closest("a[href*='#T']");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    // A link inside an SVG has no `hash` of its own.
    const address = new URL(link.getAttribute("href"), location.href);
    const found = address.hash.match(LINE_LINK);
    if (found && address.pathname === location.pathname && document.getElementById("log")) {
      event.preventDefault();
      goToLine(found[1], found[2]);
    }
  });

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]");
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      const form = event.target.closest("form") || document.getElementById("triage-form");
      if (form) { event.preventDefault(); form.requestSubmit(); }
      return;
    }
    const menu = event.key === "Escape" && one(".drop-down[open]");
    if (menu) { menu.open = false; one("summary", menu).focus(); return; }
    if (event.key === "Escape" && typing) { typing.blur(); return; }
    if (typing || event.ctrlKey || event.metaKey || event.altKey || one("dialog[open]")) return;
    const keys = {
      n: () => stepEvidence(1),
      p: () => stepEvidence(-1),
      g: () => one("[data-go-to-line]")?.focus(),
      "/": () => (one("[data-find]") || one(".find-pitfall input"))?.focus(),
      w: () => one("[data-wrap]")?.click(),
      c: () => one(".fixes [data-copy]")?.click(),
      j: () => stepRow(1),
      k: () => stepRow(-1),
      x: pickRow,
      "?": () => document.getElementById("keys")?.showModal(),
    };
    if (keys[event.key]) keys[event.key]();
    else if (event.key.length !== 1 || !pressKey(event.key)) return;
    event.preventDefault();
  });

  // Of an output that grows, the end is what the reader waits for.
  function showTails() {
    all(".run.running [data-tail]").forEach((output) => { output.scrollTop = output.scrollHeight; });
  }

  document.addEventListener("htmx:afterSettle", (event) => {
    localTimes(document);
    if (event.detail.elt?.id === "reproduce-state") showTails();
    wrapLines();
    const found = location.hash.match(LINE_LINK);
    if (event.target.id === "log" || event.detail.elt?.id === "log") {
      placeLog();
    }
    if (found) markCurrentEvidence(location.hash.slice(1));
  });
  window.addEventListener("hashchange", followHash);

  function start() {
    if (one("[data-timer-since]")) setInterval(tick, 1000);
    const form = document.getElementById("triage-form");
    // Who may not send has no button.
    if (form && one("button.primary", form)) triageForm(form);
    // A link to a line leads through the sign-in page; a form's address keeps the line.
    const login = one(".login form");
    if (login) login.action = location.href;
    localTimes(document);
    wrapLines();
    placeLog();
    showTails();
    countPicked();
    followHash();
  }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
