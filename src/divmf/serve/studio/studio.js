"use strict";
// Everything that comes from the service is set as text, never as markup.
const at = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
let token = sessionStorage.getItem("divmf-token") || "";
let curve = null, people = [], clicked = [], held = 0, previewing = 0, looked = null;

function made(tag, text, attributes = {}) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function drawn(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

class Refused extends Error {}

async function ask(path, body) {
  const options = { headers: token ? { authorization: `Bearer ${token}` } : {} };
  if (body !== undefined) {
    options.method = "POST";
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const answer = await fetch(path, options);
  const told = await answer.json();
  if (answer.status === 401) throw new Refused(told.detail);
  if (!answer.ok) throw new Error(told.detail || answer.statusText);
  return told;
}

function say(error) {
  if (error instanceof Refused) return login(token ? "That token is not the right one." : "");
  at("state").textContent = error.message;
}

const percent = (value) => value == null ? "–" : `${(100 * value).toFixed(1)}%`;
const short = (value) => value == null ? "–" : Number(value).toFixed(3);
const name = (slot) => slot.title || String(slot.item);

// the curve

function scale(values, from, to) {
  let low = Math.min(...values), high = Math.max(...values);
  if (high - low < 1e-9) { low -= 0.01; high += 0.01; }
  return (value) => from + (value - low) / (high - low) * (to - from);
}

function drawCurve() {
  const points = curve.points, wide = 480, tall = 240;
  const x = scale(points.map((point) => -point.valid.gini), 56, wide - 16);
  const y = scale(points.map((point) => point.valid.ndcg), tall - 40, 14);
  const svg = drawn("svg", { viewBox: `0 0 ${wide} ${tall}`, role: "img", "aria-label": "accuracy against evenness of exposure" });
  svg.append(drawn("line", { class: "axis", x1: 48, y1: tall - 30, x2: wide - 10, y2: tall - 30 }), drawn("line", { class: "axis", x1: 48, y1: 10, x2: 48, y2: tall - 30 }));
  const ndcg = points.map((point) => point.valid.ndcg), gini = points.map((point) => point.valid.gini);
  svg.append(
    drawn("text", { x: wide - 12, y: tall - 8, "text-anchor": "end" }, `more even → Gini ${short(Math.min(...gini))}`),
    drawn("text", { x: 48, y: tall - 8 }, `Gini ${short(Math.max(...gini))}`),
    drawn("text", { x: 44, y: 18, "text-anchor": "end" }, short(Math.max(...ndcg))),
    drawn("text", { x: 44, y: tall - 36, "text-anchor": "end" }, short(Math.min(...ndcg))),
    drawn("text", { x: wide - 12, y: 18, "text-anchor": "end" }, `up: nDCG@${curve.k} on validation`),
    drawn("polyline", { class: "line", points: points.map((point) => `${x(-point.valid.gini)},${y(point.valid.ndcg)}`).join(" ") }));
  points.forEach((point, place) => {
    const kind = place === held ? "held" : point.epoch === curve.epoch ? "now" : "";
    const dot = drawn("circle", { class: `dot ${kind}`, cx: x(-point.valid.gini), cy: y(point.valid.ndcg), r: kind ? 6 : 3.5 });
    dot.append(drawn("title", {}, point.name));
    svg.append(dot);
  });
  at("curve").replaceChildren(svg);
  const point = points[held], base = points[0];
  const lost = 1 - point.valid.ndcg / base.valid.ndcg;
  const what = `nDCG ${short(point.valid.ndcg)} (${lost > 0 ? "−" : "+"}${percent(Math.abs(lost))}), `
    + `${percent(point.valid.coverage)} of the catalog shown, Gini ${short(point.valid.gini)}`;
  at("point").textContent = `${point.name}: ${what}${point.epoch === curve.epoch ? " · this is the operating point" : ""}`;
  at("handle").setAttribute("aria-valuetext", at("point").textContent);
  at("question").textContent = `Serve everybody at ${point.name} from now on? On validation: ${what}. Discounts go over to it at once.`;
  at("set").disabled = point.epoch === curve.epoch;
}

async function loadCurve() {
  curve = await ask("curve");
  held = Math.max(0, curve.points.findIndex((point) => point.epoch === curve.epoch));
  at("handle").max = curve.points.length - 1;
  at("handle").value = held;
  drawCurve();
}

// people

async function preview() {
  const turn = ++previewing;
  const asked = people.map(({ user, history }) => user === undefined ? { history } : { user, history });
  const lists = await ask("preview", { people: asked, epoch: curve.points[held].epoch });
  if (turn !== previewing) return;
  const cards = people.map((person, place) => {
    const card = made("article");
    card.append(made("h3", person.user === undefined ? `history of ${person.history.length}` : String(person.user)));
    card.append(made("p", person.about, { class: "soft" }));
    const list = made("ol");
    for (const slot of lists[place]) {
      const line = made("li", undefined, slot.new ? { class: "new" } : {});
      const button = made("button", name(slot), { type: "button", title: `discount ${short(slot.discount)}` });
      button.addEventListener("click", () => click(slot));
      line.append(button);
      list.append(line);
    }
    card.append(list);
    return card;
  });
  at("people").replaceChildren(...cards);
}

function click(slot) {
  clicked = clicked.filter((each) => each.item !== slot.item).concat([slot]);
  people = people.filter((person) => person.user !== undefined || !person.clicked);
  people.unshift({ history: clicked.map((each) => each.item), about: clicked.map(name).join(", "), clicked: true });
  preview().catch(say);
}

function addSomeone(event) {
  event.preventDefault();
  const text = at("person").value.trim();
  at("unknown").textContent = "";
  if (!text) return;
  if (event.submitter && event.submitter.value === "history") {
    const history = text.split(",").map((each) => each.trim()).filter(Boolean);
    people.unshift({ history, about: history.join(", ") });
  } else {
    people.unshift({ user: text, history: [], about: "as typed" });
  }
  people = people.slice(0, 20);
  preview().catch((error) => { people.shift(); if (error instanceof Refused) say(error); else at("unknown").textContent = error.message; });
}

// exposure

function drawLorenz(points) {
  const wide = 480, tall = 260, x = (share) => 40 + share * (wide - 56), y = (share) => tall - 30 - share * (tall - 44);
  const svg = drawn("svg", { viewBox: `0 0 ${wide} ${tall}`, role: "img", "aria-label": "Lorenz curve of the showings" });
  svg.append(drawn("line", { class: "axis", x1: x(0), y1: y(0), x2: x(1), y2: y(0) }), drawn("line", { class: "axis", x1: x(0), y1: y(0), x2: x(0), y2: y(1) }));
  svg.append(drawn("line", { class: "even", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }));
  svg.append(drawn("polyline", { class: "line", points: points.map((share, place) => `${x(place / (points.length - 1))},${y(share)}`).join(" ") }));
  svg.append(drawn("text", { x: x(1), y: tall - 10, "text-anchor": "end" }, "items, the least shown first"), drawn("text", { x: 6, y: 12 }, "showings"));
  at("lorenz").replaceChildren(svg);
}

function card(title, value) {
  const box = made("div");
  box.append(made("dt", title), made("dd", value));
  return box;
}

async function loadExposure() {
  const told = await ask("exposure");
  at("state").textContent = `${told.point.name} · ${told.requests.toLocaleString()} requests · horizon ${told.horizon.toLocaleString()}`;
  at("cards").replaceChildren(
    card("coverage", `${percent(told.coverage)} of ${told.items.toLocaleString()}`),
    card("possible so far", percent(told.ceiling)),
    card("Gini", short(told.gini)), card("not shown yet", told.starved.items.toLocaleString()),
    card("at capacity", told.full.toLocaleString()), card("drift from the run", `${short(told.drift)} ρ`));
  drawLorenz(told.window.showings ? told.lorenz : []);
  at("starved-title").textContent = `Items not shown yet: ${told.starved.items.toLocaleString()}`;
  const first = told.starved.first.map((slot) => String(slot.item)).join();
  if (at("starved").dataset.first !== first) {
    at("starved").dataset.first = first;
    at("starved").replaceChildren(...told.starved.first.map(opener), told.starved.items > told.starved.first.length ? "…" : "");
  }
  drawGroups(told.groups);
  await loadRules(told);
  if (curve && told.point.epoch !== curve.epoch) { curve.epoch = told.point.epoch; drawCurve(); }
}

// groups and rules

function drawGroups(groups) {
  at("groups").replaceChildren();
  if (!groups) return;
  const bars = made("div", undefined, { class: "bars" });
  const most = Math.max(1, ...groups.most.map((group) => group.shown));
  const least = groups.groups >= groups.most.length + groups.least.length ? groups.least : [];
  for (const [title, some] of [["shown most", groups.most], ["shown least", least]]) {
    if (!some.length) continue;
    bars.append(made("em", title));
    for (const group of some) {
      const bar = made("i");
      bar.style.width = `${100 * group.shown / most}%`;
      const cell = made("div");
      cell.append(bar);
      bars.append(made("span", group.name), cell, made("b", group.shown.toLocaleString()));
    }
  }
  at("groups").append(made("p", `${groups.column}: ${groups.starved.toLocaleString()} of ${groups.groups.toLocaleString()} not shown of late`), bars);
}

async function loadRules(told) {
  at("ruled").hidden = !told.groups && !told.rules;
  at("rules-table").hidden = !told.rules || !told.rules.totals;
  at("rules-said").textContent = told.rules
    ? `Rules: ${told.rules.reached} of ${told.rules.floors} floors reached in this horizon, ${told.rules.full} at their cap, ${told.rules.blocked} items left out, ${told.rules.impossible} demands that cannot be met`
    : "No rules are set; PUT /rules, or start with --rules.";
  if (!told.rules || !told.rules.totals) return;
  const rules = await ask("rules");
  at("rules").replaceChildren(...rules.totals.slice(0, 12).map((total) => {
    const row = made("tr"), given = made("td", total.in_horizon.toLocaleString());
    if (total.full) given.append(" ", made("span", "full", { class: "full" }));
    const most = total.share_at_most ? percent(total.share_at_most) : total.at_most === null ? "–" : total.at_most.toLocaleString();
    row.append(made("td", `${total.rule} ${total.name}`), made("td", total.at_least ? total.at_least.toLocaleString() : "–"),
      made("td", most), made("td", total.per_list ?? "–"), given);
    return row;
  }));
  at("rules-more").textContent = rules.n_totals > 12 ? `The first 12 of ${rules.n_totals.toLocaleString()}; GET /rules has more. ` : "";
}

async function loadLast() {
  const rows = (await ask("requests?limit=12")).map((request) => {
    const row = made("tr");
    row.append(made("td", new Date(1000 * request.at).toLocaleTimeString()), made("td", request.user ?? "–"), made("td", request.items.slice(0, 6).map(name).join(" · ") + (request.items.length > 6 ? " …" : "")));
    return row;
  });
  at("last").replaceChildren(...rows);
  at("quiet").hidden = rows.length > 0;
}

// one item

async function search() {
  const text = at("search").value.trim();
  at("found").replaceChildren();
  if (!text) return;
  const found = await ask(`items?limit=8&q=${encodeURIComponent(text)}`);
  if (text !== at("search").value.trim()) return;
  at("found").replaceChildren(...found.map((each) => {
    const line = made("li"), button = made("button", `${name(each)} · shown ${each.shown.toLocaleString()} times`, { type: "button" });
    button.addEventListener("click", () => showItem(each.item).catch(say));
    line.append(button);
    return line;
  }));
  if (!found.length) at("found").append(made("li", "Nothing found."));
}

function opener(slot) {
  const button = made("button", name(slot), { type: "button" });
  button.addEventListener("click", () => showItem(slot.item).then(() => at("one").scrollIntoView({ behavior: "smooth" })).catch(say));
  return button;
}

async function showItem(id) {
  looked = id;
  const item = await ask(`items/${encodeURIComponent(id)}`);
  if (looked !== id) return;
  const box = at("item"), cards = made("dl", undefined, { class: "cards" });
  cards.append(card("shown", item.shown.toLocaleString()), card("of late", `${item.window.showings} in ${item.window.requests.toLocaleString()} requests`),
    card("its share", `${item.target.toFixed(1)} a horizon`), card("discount", `${short(item.discount)} of ${short(item.most)}`),
    card("capacity", item.capacity === null ? "no limit" : item.capacity.toLocaleString()));
  const rules = item.rules.map((rule) => `${rule.rule} ${rule.name}: shown ${rule.given.toLocaleString()}`
    + (rule.at_most === null ? "" : `, at most ${rule.at_most.toLocaleString()}`)
    + (rule.share_at_most === null ? "" : `, at most ${percent(rule.share_at_most)} of all slots`)
    + (rule.at_least ? `, at least ${rule.at_least.toLocaleString()} a horizon (${rule.in_horizon.toLocaleString()} so far)` : "")
    + (rule.per_list === null ? "" : `, ${rule.per_list} in a list`));
  box.replaceChildren(made("h3", name(item)), cards, ...rules.map((rule) => made("p", rule, { class: "soft" })), made("p", item.advice));
  const more = made("button", "Double its share", { type: "button" });
  more.addEventListener("click", () => {
    if (!window.confirm(`Let ${name(item)} expect ${2 * item.share} times its even share?`)) return;
    ask("items", { items: [{ item: item.item, share: Math.min(1000, 2 * item.share || 1) }] }).then(() => showItem(id)).catch(say);
  });
  box.append(more);
  const whom = item.shown_to.map((each) => `${each.user ?? "somebody"} (slot ${each.slot})`).join(", ");
  box.append(made("p", whom ? `Last shown to ${whom}.` : "Not among the last requests.", { class: "soft" }));
}

// the whole

function login(why) {
  at("studio").hidden = true;
  at("login").hidden = false;
  at("refused").textContent = why;
  at("state").textContent = "Not connected";
}

async function open() {
  await loadCurve();
  people = (await ask("people")).map((each) => ({ user: each.user, history: [], about: `met ${each.met}: ${each.some.map(name).join(", ")}` }));
  at("login").hidden = true;
  at("studio").hidden = false;
  await Promise.all([preview(), loadExposure(), loadLast()]);
}

let waiting = 0, typed = 0;
at("handle").addEventListener("input", () => {
  held = Number(at("handle").value);
  drawCurve();
  clearTimeout(waiting);
  waiting = setTimeout(() => preview().catch(say), 60);
});
at("set").addEventListener("click", () => {
  at("confirm").returnValue = "";  // Esc leaves it
  at("confirm").showModal();
});
at("confirm").addEventListener("close", () => {
  if (at("confirm").returnValue !== "yes") return;
  ask("point", { epoch: curve.points[held].epoch }).then(() => { curve.epoch = curve.points[held].epoch; drawCurve(); return loadExposure(); }).catch(say);
});
at("someone").addEventListener("submit", addSomeone);
at("search").addEventListener("input", () => { clearTimeout(typed); typed = setTimeout(() => search().catch(say), 150); });
at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = at("token").value;
  sessionStorage.setItem("divmf-token", token);
  open().catch(say);
});
setInterval(() => { if (!at("studio").hidden && !document.hidden) Promise.all([loadExposure(), loadLast(), looked === null || showItem(looked)]).catch(say); }, 2000);
open().catch(say);
