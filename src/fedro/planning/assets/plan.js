"use strict";
// The plan as a page. First the planner: what planner.py, feasibility.py and tails.py compute, for rules whose κ
// depends on r = b̂/(n̂−2b̂) alone and up to a million clients (the tests hold the two together). Then the page:
// fields, words, charts.

// ---- Tails, in logarithms ------------------------------------------------------------------------------------

const HALF_LOG_2PI = 0.5 * Math.log(2 * Math.PI);

/** ln x! − ln(√(2πx)·(x/e)ˣ), without the cancellation. */
function stirlingError(x) {
  if (x < 16) {
    let factorial = 1;
    for (let i = 2; i <= x; i++) factorial *= i;
    return Math.log(factorial) - (x + 0.5) * Math.log(x) + x - HALF_LOG_2PI;
  }
  const s = 1 / (x * x);
  return (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - s / 1188) * s) * s) * s) / x;
}

/** x·ln(x/mean) + mean − x, without the cancellation where x ≈ mean (Loader 2000). */
function deviance(x, mean) {
  const gap = x - mean;
  if (x === 0) return mean;
  if (Math.abs(gap) >= 0.1 * (x + mean)) return x * Math.log(x / mean) - gap;
  const v = gap / (x + mean);
  let total = gap * v, before = NaN;
  for (let j = 3, term = 2 * x * v ** 3; total !== before; j += 2, term *= v * v) {
    before = total;
    total += term / j;
  }
  return total;
}

/** ln P[X = k] for X ~ Bin(n, p). */
function binomialLogPmf(k, n, p) {
  if (k < 0 || k > n) return -Infinity;
  if (p === 0 || p === 1) return k === n * p ? 0 : -Infinity;
  if (k === 0) return n * Math.log1p(-p);
  if (k === n) return n * Math.log(p);
  const errors = stirlingError(n) - stirlingError(k) - stirlingError(n - k);
  const deviances = deviance(k, n * p) + deviance(n - k, n * (1 - p));
  return errors - deviances - HALF_LOG_2PI - 0.5 * (Math.log(k) + Math.log1p(-k / n));
}

/** ln P[X = k], X the marked ones among `drawn` drawn without replacement from `population`. */
function hypergeometricLogPmf(k, population, marked, drawn) {
  if (k < Math.max(0, drawn + marked - population) || k > Math.min(drawn, marked)) return -Infinity;
  const p = drawn / population;
  return binomialLogPmf(k, marked, p) + binomialLogPmf(drawn - k, population - marked, p)
    - binomialLogPmf(drawn, population, p);
}

/** ln(first·(1 + r(x₀) + r(x₀)·r(x₁) + …)), falling terms, with x from `from` up or down to before `to`. */
function logSum(logFirst, ratio, from, to) {
  let total = 1;
  for (let x = from, last = 1; x !== to && last > 1e-18 * total; x += Math.sign(to - from)) {
    last *= ratio(x);
    total += last;
  }
  return logFirst + Math.log(total);
}

/** ln P[X ≤ k] of the hypergeometric distribution, exact in both tails. */
function hypergeometricLogCdf(k, population, marked, drawn) {
  const low = Math.max(0, drawn + marked - population), high = Math.min(drawn, marked);
  if (k < low) return -Infinity;
  if (k >= high) return 0;
  const rest = population - marked - drawn;
  if (k >= drawn * marked / population) {
    const first = hypergeometricLogPmf(k + 1, population, marked, drawn);
    const ratio = (x) => (marked - x) * (drawn - x) / ((x + 1) * (rest + x + 1));
    return Math.log1p(-Math.exp(logSum(first, ratio, k + 1, high)));
  }
  const ratio = (x) => x * (rest + x) / ((marked - x + 1) * (drawn - x + 1));
  return logSum(hypergeometricLogPmf(k, population, marked, drawn), ratio, k, low);
}

/** ln P[X ≤ k] for X ~ Bin(n, p), exact in both tails. */
function binomialLogCdf(k, n, p) {
  if (k < 0) return -Infinity;
  if (k >= n || p === 0) return 0;
  if (p === 1) return -Infinity;
  const odds = p / (1 - p);
  if (k >= n * p) {
    const ratio = (x) => (n - x) / (x + 1) * odds;
    return Math.log1p(-Math.exp(logSum(binomialLogPmf(k + 1, n, p), ratio, k + 1, n)));
  }
  return logSum(binomialLogPmf(k, n, p), (x) => x / (n - x + 1) / odds, k, 0);
}

// ---- The planner ---------------------------------------------------------------------------------------------

/** The least integer in [low, high] that is wanted, if all larger ones are too; else null. */
function least(wanted, low, high) {
  if (low > high || !wanted(high)) return null;
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if (wanted(middle)) high = middle; else low = middle + 1;
  }
  return low;
}

/** The κ that is proved for each rule, as a function of the best possible one, r = b̂/(n̂−2b̂). */
const PROVED = {
  "nnm | trimmed_mean": (r) => 4 * r,
  trimmed_mean: (r) => r,
  geometric_median: (r) => 4 * (1 + r) ** 2,
  krum: (r) => 6 * (1 + r),
};
/** The same against f < b̂ Byzantine clients among n replies. */
const PROVED_WITH_FEWER = {
  "nnm | trimmed_mean": (n, b, f) => (4 * f * (n - f) + (b - f) * (n - b)) / (n - b) ** 2 * (b / (n - b - f) + 1),
  trimmed_mean: (n, b, f) => b / (n - b - f),
  geometric_median: (n, b, f) => 4 * (1 + f / (n - 2 * f)) ** 2,
  krum: (n, b, f) => PROVED.krum(b / (n - 2 * b)) * (n - b - 1) / (n - b) * (n - f) / (n - f - 1),
};
const SMALL_FEDERATION = 20, SAMPLED_WITHOUT_BYZANTINE = 10, LIKELY = 0.95, MAX_RETRIES_PER_ROUND = 100;

/** One planning problem; n̂ and b̂ are called `sampled` and `tolerated`. */
class Setting {
  constructor(asked) {
    Object.assign(this, asked); // clients, byzantine, rounds, confidence, dropout, retries, bound, rule
    this.draws = this.rounds + this.retries;
    this.logConfidence = Math.log(this.confidence) * (1 + 1e-11);
    const [digits, exponent = 0] = String(this.dropout).split("e"), decimals = digits.split(".")[1] ?? "";
    this.scale = 10n ** BigInt(decimals.length - exponent); // dropout·scale is a whole number
    this.replyRate = this.scale - BigInt(digits.replace(".", ""));
  }

  /** ln of the proved probability that no draw holds more than b̂ Byzantine clients. */
  logSafe(sampled, tolerated) {
    if (this.bound === "exact" || this.byzantine === 0) return this.logSafeExact(sampled, tolerated);
    if (this.bound === "literal") return this.logChernoff(sampled, tolerated);
    return tolerated >= Math.min(this.byzantine, sampled) ? 0 : this.logChernoff(sampled, tolerated + 1);
  }

  logSafeExact(sampled, tolerated) {
    return this.draws * hypergeometricLogCdf(tolerated, this.clients, this.byzantine, sampled);
  }

  /** ln(1 − T·exp(−n̂·D(bad/n̂, β))); −∞ where the union bound says nothing. */
  logChernoff(sampled, bad) {
    if (bad * this.clients <= this.byzantine * sampled) return -Infinity;
    const alpha = bad / sampled, beta = this.byzantine / this.clients;
    const logFail = Math.log(this.draws) - sampled * (deviance(alpha, beta) + deviance(1 - alpha, 1 - beta));
    return logFail < 0 ? Math.log1p(-Math.exp(logFail)) : -Infinity;
  }

  /** ln P[at most `retries` draws are void], a draw being void with 2b̂ replies or fewer. */
  logEnough(sampled, tolerated) {
    const missing = sampled - 2 * tolerated - 1;
    if (missing < 0) return -Infinity;
    if (this.dropout === 0) return 0;
    return binomialLogCdf(this.retries, this.draws, -Math.expm1(binomialLogCdf(missing, sampled, this.dropout)));
  }

  /** ln of the true probability that the whole run is good, whichever bound chose b̂. */
  logAchieved(sampled, tolerated) {
    return this.logSafeExact(sampled, tolerated) + this.logEnough(sampled, tolerated);
  }

  /** The expected number of replies of n̂ invited clients, rounded down: ⌊n̂·(1 − dropout)⌋ in decimals. */
  received(sampled) {
    const about = sampled * (1 - this.dropout);
    if (Math.abs(about - Math.round(about)) > 1e-6) return Math.floor(about);
    return Number(BigInt(sampled) * this.replyRate / this.scale);
  }

  /** r, the best possible κ, for the expected number of replies; infinite if a round would be void. */
  best(sampled, tolerated) {
    const received = this.received(sampled);
    return received > 2 * tolerated ? tolerated / (received - 2 * tolerated) : Infinity;
  }

  /** The κ proved for the rule, for the same replies. */
  kappa(sampled, tolerated) {
    return PROVED[this.rule](this.best(sampled, tolerated));
  }

  /** The κ proved for the rule in a round with this many Byzantine clients; null if they are more than tolerated. */
  kappaWith(sampled, tolerated, byzantine) {
    if (byzantine > tolerated) return null;
    if (byzantine === tolerated) return this.kappa(sampled, tolerated);
    const received = this.received(sampled), replies = this.dropout ? [received, received + 1] : [received];
    return Math.max(...replies.map((n) => PROVED_WITH_FEWER[this.rule](n, tolerated, byzantine)));
  }

  /** The smallest number of Byzantine clients that 95% of the draws do not exceed. */
  likely(sampled) {
    const reached = (k) => hypergeometricLogCdf(k, this.clients, this.byzantine, sampled) >= Math.log(LIKELY);
    return least(reached, 0, Math.min(sampled, this.byzantine));
  }

  /** How many retries make some n̂ safe; null if no sensible number does. */
  enoughRetries() {
    const enough = (retries) => new Setting({ ...this, retries }).first(Infinity) !== null;
    let few = this.retries, many = Math.max(1, 2 * this.retries);
    while (!enough(many)) {
      [few, many] = [many, 2 * many];
      if (many > MAX_RETRIES_PER_ROUND * this.rounds) return null;
    }
    return least(enough, few + 1, many);
  }

  /** The smallest safe b̂ < n̂/2 for this n̂, or null: raised until it demands no more of itself. */
  toleratedAt(sampled) {
    const demanded = (by) => {
      const need = this.logConfidence - this.logEnough(sampled, by);
      return least((b) => this.logSafe(sampled, b) >= need, by, Math.floor((sampled - 1) / 2));
    };
    let tolerated = 0, larger = demanded(0);
    while (larger !== null && larger !== tolerated) [tolerated, larger] = [larger, demanded(larger)];
    return larger;
  }

  /** The least n̂ that is safe and whose `error` is at most `limit`, over all b̂; or null. */
  first(limit, error = this.best) {
    let found = null;
    for (let tolerated = 0, stride = 1; ;) {
      const most = found === null ? this.clients : found - 1;
      const good = (n) => limit === Infinity || error.call(this, n, tolerated) <= limit * (1 + 1e-12);
      const start = least((n) => good(n) && this.logEnough(n, tolerated) >= this.logConfidence, 2 * tolerated + 1, most);
      if (start === null) return found;
      if (this.unsafe(start, tolerated + stride - 1)) { // then all b̂ of the stride are, which need as many or more
        tolerated += stride;
        stride *= 2;
      } else if (stride > 1) {
        stride /= 2;
      } else {
        found = this.entry(tolerated, start, most) ?? found;
        tolerated += 1;
      }
    }
  }

  /** The least n̂ in [start, most] that is safe with this b̂: more clients reply often enough, but hold more Byzantine ones. */
  entry(tolerated, start, most) {
    for (let sampled = start; sampled !== null;) {
      const need = this.logConfidence - this.logSafe(sampled, tolerated);
      if (need > 0) return null;
      const enough = (n) => this.logEnough(n, tolerated) >= need;
      if (enough(sampled)) return sampled;
      sampled = least(enough, sampled + 1, most);
    }
    return null;
  }

  /** Is n̂ too large for this b̂? Most often the likeliest number of Byzantine clients above b̂ alone makes it so. */
  unsafe(sampled, tolerated) {
    const mode = Math.floor((sampled + 1) * (this.byzantine + 1) / (this.clients + 2));
    const bad = Math.max(mode, tolerated + 1);
    const one = Math.exp(hypergeometricLogPmf(bad, this.clients, this.byzantine, sampled));
    return this.draws * Math.log1p(-one * (1 - 1e-9)) < this.logConfidence
      || this.logSafe(sampled, tolerated) < this.logConfidence;
  }
}

/** The recommended n̂: everyone if they are few, else the least whose r, or κ if it is limited, is small enough. */
function recommend(setting, limit, max_kappa) {
  if (max_kappa !== null) return setting.first(limit, setting.kappa);
  const { clients, byzantine } = setting;
  const works = (n) => {
    const b = setting.toleratedAt(n);
    return b !== null && setting.best(n, b) <= limit * (1 + 1e-12);
  };
  if (clients <= SMALL_FEDERATION && works(clients)) return clients;
  const usual = Math.min(clients, SAMPLED_WITHOUT_BYZANTINE);
  if (byzantine === 0 && works(usual)) return usual;
  return setting.first(limit);
}

/** What `fedro plan` recommends, or {problem: why there is nothing to recommend}; `advise` says how many retries would do. */
function plan(asked, advise = false) {
  const problem = invalid(asked);
  if (problem) return { problem };
  const setting = new Setting(asked);
  const { clients, byzantine, dropout, bound } = setting;
  const best = byzantine / (clients - 2 * byzantine), everyone = PROVED[setting.rule](best);
  const limited = asked.max_kappa === null ? "r" : "κ";
  const limit = asked.max_kappa ?? Math.max(1, 2 * best);
  const fewest = setting.first(Infinity);
  if (fewest === null) {
    const retries = advise && dropout ? setting.enoughRetries() : null;
    const advice = [bound !== "exact" && "use the exact bound", retries !== null && `allow ${retries} ${retries === 1 ? "retry" : "retries"}`,
      dropout && "expect fewer dropouts"];
    return { problem: `No sample of up to ${clients} clients is safe: ${advice.filter(Boolean).join(", or ")}.` };
  }
  const sampled = recommend(setting, limit, asked.max_kappa);
  if (sampled === null) {
    return { problem: `No sample reaches ${limited} ≤ ${short(limit)}: sampling all ${clients} clients has ` +
      `κ = ${short(everyone)}; allow more, or plan for fewer Byzantine clients.` };
  }
  const tolerated = setting.toleratedAt(sampled);
  return {
    setting, sampled, tolerated, everyone, limit, limited, fewest,
    kappa: setting.kappa(sampled, tolerated),
    best: setting.best(sampled, tolerated),
    achieved: Math.exp(setting.logAchieved(sampled, tolerated)),
  };
}

/** What is wrong with the values asked for, or nothing. */
function invalid(asked) {
  const whole = (name, value, low, high) =>
    !(Number.isInteger(value) && low <= value && value <= high) && `${name} must be a whole number from ${low} to ${high}.`;
  return whole("Clients", asked.clients, 1, 1e6)
    || whole("Byzantine clients", asked.byzantine, 0, asked.clients)
    || 2 * asked.byzantine >= asked.clients && `${asked.byzantine} of ${asked.clients} clients are Byzantine: that is half ` +
      "or more, and no rule can tell them from the honest ones."
    || whole("Rounds", asked.rounds, 1, 1e12)
    || !(asked.confidence > 0 && asked.confidence <= 1) && "The confidence must be above 0 and at most 1."
    || !(asked.dropout >= 0 && asked.dropout < 1) && "The dropout must be at least 0 and below 1."
    || whole("Retries", asked.retries, 0, 1e12)
    || asked.max_kappa !== null && !(asked.max_kappa >= 0) && "The largest κ must be 0 or more.";
}

// ---- Words ---------------------------------------------------------------------------------------------------

/** Four digits, without zeros at the end. */
const short = (x) => String(Number(x.toPrecision(4)));

/** A probability with as many digits as tell it from 0 and 1, from its logarithm. */
function percent(log) {
  const p = Math.exp(log), distance = Math.min(p, -Math.expm1(log));
  if (p === 0 || p === 1) return p ? "100%" : "0%";
  if (p < 1e-6) return p.toExponential(0);
  const digits = Math.max(0, -Math.floor(Math.log10(distance * (1 + 1e-9))) - 1);
  return digits > 8 ? "over 99.9999999%" : `${Number((100 * p).toFixed(digits))}%`;
}

const counted = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

/** Why these numbers, in sentences. */
function explain({ setting, sampled, tolerated, kappa, best, everyone, limit, limited, fewest }) {
  const fewKappa = setting.kappa(fewest, setting.toleratedAt(fewest)), all = setting.dropout ? ", if all replied," : "";
  const mean = sampled * setting.byzantine / setting.clients;
  const said = [
    `With probability ${percent(setting.logSafeExact(sampled, tolerated))}, none of the ${counted(setting.draws, "draw")} of ${counted(sampled, "client")} ` +
      `holds more than ${counted(tolerated, "Byzantine one")}.`,
    limited === "κ" ? `${sampled} is the smallest sample whose κ with ${setting.rule} is at most ${short(limit)}.`
      : sampled === setting.clients && sampled <= SMALL_FEDERATION && setting.byzantine ? `With ${counted(sampled, "client")} it is best to sample everyone: ` +
        "a smaller sample would have to tolerate almost as many Byzantine clients with fewer honest ones to outvote them, and would save few messages."
      : setting.byzantine === 0 ? "Without Byzantine clients any number may be sampled; more of them mean less noise."
      : `${sampled} is the smallest sample with which the best possible κ, r = b̂/(n̂−2b̂), is at most ${short(limit)}.`,
    `κ = ${short(kappa)} is proved for ${setting.rule} in a round with ${counted(tolerated, "Byzantine client")}; no rule can have less ` +
      `than r = ${short(best)}. Sampling everyone${all} would have κ = ${short(everyone)}.`,
  ];
  if (tolerated > mean && mean > 0) said.push(ordinary(setting, sampled, tolerated, mean));
  if (fewest < sampled) {
    const price = fewKappa < Infinity ? `, but with κ = ${short(fewKappa)}` : "";
    said.push(`A sample of ${fewest} can be safe${price}; no smaller sample can be safe.`);
  }
  if (setting.dropout) {
    said.push(`About ${setting.received(sampled)} of ${sampled} reply; a draw is void if ${2 * tolerated} or fewer do, ` +
      `and at most ${setting.retries} are with probability ${percent(setting.logEnough(sampled, tolerated))}.`);
  }
  return said;
}

/** The κ of rounds with fewer Byzantine clients than tolerated. */
function ordinary(setting, sampled, tolerated, mean) {
  const usual = Math.ceil(mean), likely = setting.likely(sampled), unexceeded = "which 95% of the draws do not exceed,";
  const [proved, rare] = [usual, likely].map((byzantine) => setting.kappaWith(sampled, tolerated, byzantine));
  const average = `A draw has ${Number(mean.toPrecision(3))} Byzantine clients on average.`;
  if (usual === likely) return `${average} With ${usual}, ${unexceeded} the proved κ is ${short(proved)}.`;
  return `${average} With ${usual} of them the proved κ is ${short(proved)}; with ${likely}, ${unexceeded} ` +
    `${rare === null ? "nothing is proved, because they are more than tolerated" : `it is ${short(rare)}`}.`;
}

/** The command that says the same, as its parts. */
function command(asked) {
  const usual = { confidence: 0.99, dropout: 0, retries: 0, bound: "exact", max_kappa: null, rule: "{{ default_rule }}" };
  const options = Object.entries(asked).filter(([name, value]) => value !== usual[name]);
  const quoted = (value) => String(value).includes(" ") ? `'${value}'` : value;
  return ["fedro plan", ...options.map(([name, value]) => `--${name.replace("_", "-")} ${quoted(value)}`)];
}

// ---- The page: what is asked ---------------------------------------------------------------------------------

const element = (id) => document.getElementById(id);
const CONFIDENCES = [0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999, 0.99999, 0.999999];
const STEPS = 300; // of a logarithmic slider

/** What a slider's position means, and which position means a value. */
const SLIDERS = {
  clients: logarithmic(10, 1e5),
  rounds: logarithmic(10, 1e5),
  confidence: { value: (at) => CONFIDENCES[at], at: (p) => CONFIDENCES.findLastIndex((c) => c <= p) },
  dropout: { value: (at) => at / 200, at: (share) => 200 * share },
};

function logarithmic(low, high) {
  return {
    value: (at) => Number((low * (high / low) ** (at / STEPS)).toPrecision(2)),
    at: (value) => STEPS * Math.log(value / low) / Math.log(high / low),
  };
}

let share = [0, 1]; // Byzantine clients, of how many: kept when the number of clients changes

/** The values in the fields; NaN where there is no number. */
function asked() {
  const number = (id) => element(id).value === "" ? NaN : Number(element(id).value);
  const { clients, byzantine, rounds, confidence, dropout, retries } = Object.fromEntries(
    ["clients", "byzantine", "rounds", "confidence", "dropout", "retries"].map((id) => [id, number(id)]));
  const max_kappa = element("max_kappa").value === "" ? null : number("max_kappa");
  return { clients, byzantine, rounds, confidence, dropout, retries, bound: element("bound").value, max_kappa,
    rule: element("rule").value };
}

/** Bring fields and sliders in line with the one that was moved, then show the new plan. */
function changed(id) {
  if (id === "byzantine") share = [asked().byzantine, asked().clients];
  if (id === "share") share = [Number(element("share").value), 1000];
  if (id.endsWith("_slider")) {
    const name = id.replace("_slider", "");
    element(name).value = SLIDERS[name].value(Number(element(id).value));
  }
  const { clients, byzantine } = asked();
  if (id !== "byzantine" && clients >= 1 && share.every(Number.isFinite)) {
    element("byzantine").value = Math.ceil(clients * share[0] / share[1]);
  }
  for (const [name, { at }] of Object.entries(SLIDERS)) {
    if (id !== `${name}_slider`) element(`${name}_slider`).value = at(asked()[name]);
    element(`${name}_slider`).setAttribute("aria-valuetext", element(name).value);
  }
  if (id !== "share" && clients >= 1 && byzantine >= 0) element("share").value = 1000 * byzantine / clients;
  show(asked());
}

// ---- The page: the answer ------------------------------------------------------------------------------------

/** A value for programs, and the words for people. */
function put(id, value, text) {
  element(id).value = value;
  element(id).textContent = text;
  element(id).classList.toggle("long", String(text).length > 6);
}

function show(ask) {
  const found = plan(ask, true), { clients, byzantine } = ask;
  element("share_text").textContent = clients >= 1 && byzantine >= 0 ? `${short(100 * byzantine / clients)}% of all` : "";
  element("problem").textContent = found.problem ?? "";
  element("problem").hidden = !found.problem;
  element("tiles").hidden = element("details").hidden = Boolean(found.problem);
  drawn = null;
  if (found.problem) return;
  put("sampled", found.sampled, found.sampled);
  put("tolerated", found.tolerated, found.tolerated);
  put("kappa", found.kappa, short(found.kappa));
  put("best", found.best, short(found.best));
  for (const place of document.querySelectorAll(".rule")) place.textContent = ask.rule;
  put("achieved", found.achieved, percent(Math.log(found.achieved)));
  put("fewest", found.fewest, found.fewest);
  element("never").hidden = found.fewest === 1;
  put("everyone", found.everyone, short(found.everyone));
  element("of_clients").textContent = `of ${clients}`;
  const each = (tag, texts) => texts.map((text) => Object.assign(document.createElement(tag), { textContent: text }));
  element("command").replaceChildren(...each("span", command(ask)).flatMap((part) => [part, " "]));
  element("why").replaceChildren(...each("li", explain(found)));
  tabulate(found);
  draw(found);
  clearTimeout(comparing);
  comparing = setTimeout(() => compare(ask), 0); // after the answer is on the screen
}

/** What each noteworthy sample size would mean. */
function tabulate({ setting, sampled, fewest }) {
  const sizes = new Map([[fewest, "least that works"], [setting.clients, "everyone"], [sampled, "this plan"]]);
  const rows = [...sizes].sort(([a], [b]) => a - b).map(([n, name]) => {
    const b = setting.toleratedAt(n), kappa = b === null ? Infinity : setting.kappa(n, b);
    if (kappa === Infinity) return "";
    const cells = [n, b, short(kappa), short(setting.best(n, b)), percent(setting.logAchieved(n, b)), 2 * n].map((cell) => `<td>${cell}</td>`);
    return `<tr${n === sampled ? ' class="plan"' : ""}><th scope="row">${name}</th>${cells.join("")}</tr>`;
  });
  element("sizes").innerHTML = rows.join("");
}

// ---- The page: if the number of Byzantine clients is not known -----------------------------------------------

const SHARES = [0, 1, 5, 10, 20, 30]; // percent, as in `fedro plan` without --byzantine
let comparing = 0; // the timer of the comparison that is to come

/** Plans for several shares of Byzantine clients: a table, and n̂ and b̂ as curves. */
function compare(ask) {
  const at = (percents) => ({ ...ask, byzantine: Math.ceil(ask.clients * percents / 100) });
  const numbers = new Map(SHARES.map((share) => [at(share).byzantine, share]));
  const rows = [...numbers].sort(([a], [b]) => a - b).map(([byzantine]) => {
    const found = plan({ ...ask, byzantine }), name = `${byzantine} (${short(100 * byzantine / ask.clients)}%)`;
    if (found.problem) return `<tr><th scope="row">${name}</th><td colspan="5">no plan</td></tr>`;
    const more = Math.min(Math.max(byzantine + 1, Math.ceil(1.5 * byzantine)), ask.clients);
    const outlook = new Setting({ ...ask, byzantine: more, bound: "exact" });
    const safe = `${more}: ${percent(outlook.logAchieved(found.sampled, found.tolerated))}`;
    const cells = [found.sampled, found.tolerated, short(found.kappa), short(found.best), safe];
    return `<tr${byzantine === ask.byzantine ? ' class="plan"' : ""}><th scope="row">${name}</th>${cells.map((cell) => `<td>${cell}</td>`).join("")}</tr>`;
  });
  element("scenarios").innerHTML = rows.join("");
  const step = ask.clients > 1e4 ? 4 : 2;
  const points = Array.from({ length: 40 / step + 1 }, (_, i) => ({ share: step * i, ...plan(at(step * i)) }));
  drawShares(points.filter((point) => !point.problem), 100 * ask.byzantine / ask.clients);
}

/** n̂ and b̂ over the share of Byzantine clients, with a line at the share of this plan. */
function drawShares(points, share) {
  const svg = element("scenario_chart"), width = Math.max(240, element("charts").clientWidth);
  const bottom = HEIGHT - BOTTOM, most = Math.max(1, ...points.map((point) => point.sampled));
  const x = (value) => LEFT + (width - LEFT - RIGHT) * value / 40, y = (value) => bottom - (bottom - TOP) * value / most;
  const parts = [];
  for (const tick of [0, 0.25, 0.5, 0.75, 1].map((part) => Math.round(part * most))) {
    parts.push(`<path class="grid" d="M${LEFT} ${y(tick)}H${width - RIGHT}"/><text x="${LEFT - 6}" y="${y(tick) + 4}" class="end">${tick}</text>`);
  }
  for (const tick of [0, 10, 20, 30, 40]) parts.push(`<text x="${x(tick)}" y="${HEIGHT - 6}" class="middle">${tick}%</text>`);
  for (const [name, color] of [["sampled", "blue"], ["tolerated", "orange"]]) {
    const path = points.map((point, i) => `${i ? "L" : "M"}${x(point.share).toFixed(1)} ${y(point[name]).toFixed(1)}`).join("");
    parts.push(`<path class="line ${color}" d="${path}"/>`);
  }
  if (share <= 40) parts.push(`<path class="level" d="M${x(share)} ${TOP}V${bottom}"/>`);
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  svg.setAttribute("height", HEIGHT);
  svg.innerHTML = parts.join("");
}

// ---- The page: charts ----------------------------------------------------------------------------------------

const POINTS = 240;
const HEIGHT = 210, LEFT = 54, RIGHT = 14, TOP = 18, BOTTOM = 26;
let drawn = null; // what the charts show: {found, points, charts, x}

/** The sample sizes to draw, from a little below the least that works, and what each would mean. */
function curve({ setting, sampled, tolerated, fewest }) {
  const last = Math.min(setting.clients, Math.max(10 * sampled, fewest + 10));
  const sizes = new Set([sampled]);
  for (let i = 0; i <= POINTS; i++) sizes.add(Math.round(fewest * (last / fewest) ** (i / POINTS)));
  return [...sizes].sort((a, b) => a - b).map((n) => {
    const b = setting.toleratedAt(n), kappa = b === null ? Infinity : setting.kappa(n, b);
    const safe = b === null ? null : setting.logAchieved(n, b), best = b === null ? Infinity : setting.best(n, b);
    return { n, b, kappa, best, safe, held: n > 2 * tolerated ? setting.logAchieved(n, tolerated) : null };
  });
}

/** 1, 2, 5, 10, 20 … between low and high, fewer if that is many. */
function logTicks(low, high) {
  const many = Math.log10(high / low), steps = many > 4 ? [1] : many > 2 ? [1, 3] : [1, 2, 5];
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    for (const step of steps) ticks.push(Number(`${step}e${power}`));
  }
  return ticks.filter((tick) => low <= tick && tick <= high);
}

/** How many nines a probability has, from its logarithm: 0.99 has two. */
const nines = (log) => Math.min(16, -Math.log10(-Math.expm1(log)));

function draw(found) {
  const { setting, sampled, tolerated, kappa, everyone, limit, limited, fewest, achieved } = found;
  const points = curve(found), last = points[points.length - 1].n, first = Math.max(0.8, fewest * 0.75);
  const width = Math.max(240, element("charts").clientWidth), span = Math.log(Math.max(last, first + 1) / first);
  const x = (n) => LEFT + (width - LEFT - RIGHT) * Math.log(n / first) / span;
  const charts = [];
  drawn = { found, points, charts, x };

  const kappas = points.flatMap((point) => [point.kappa, point.best]).filter((value) => value < Infinity);
  const low = Math.min(everyone, ...kappas) / 1.4, high = Math.max(limit, ...kappas) * 1.4;
  const flat = low === 0; // without Byzantine clients κ is 0, which has no logarithm
  charts.push(chart("kappa_chart", width, x, first, last, {
    height: (value) => flat ? value / high : Math.log(value / low) / Math.log(high / low),
    ticks: (flat ? [0, 0.5, 1] : logTicks(low, high)).map((tick) => [tick, short(tick)]),
    lines: {
      soft: (point) => point.best < Infinity ? point.best : null,
      blue: (point) => point.kappa < Infinity ? point.kappa : null,
    },
    levels: [[everyone, `everyone: κ = ${short(everyone)}`, "start", true], [limit, `wanted: ${limited} ≤ ${short(limit)}`, "end"]],
    mark: [kappa, `κ = ${short(kappa)}`],
    say: (point) => point.kappa < Infinity ? `n̂ = ${point.n}: κ = ${short(point.kappa)}` : `n̂ = ${point.n}: not safe`,
  }));

  const beta = setting.byzantine / setting.clients;
  charts.push(chart("share_chart", width, x, first, last, {
    height: (value) => value / 0.56,
    ticks: [0, 0.1, 0.2, 0.3, 0.4, 0.5].map((tick) => [tick, `${short(100 * tick)}%`]),
    lines: { blue: (point) => point.b === null ? null : point.b / point.n },
    levels: [[beta, `b/n = ${short(100 * beta)}%`, "start", true], [0.5, "half", "end"]],
    mark: [tolerated / sampled, `b̂ = ${tolerated}`],
    say: (point) => point.b === null ? `n̂ = ${point.n}: not safe` : `n̂ = ${point.n}: b̂ = ${point.b}`,
  }));

  const wanted = nines(Math.log(setting.confidence)), most = Math.max(...points.map((point) => nines(point.safe ?? -Infinity)));
  const top = Math.max(1, Math.min(most, wanted + 2.5)) + 0.4;
  const whole = Array.from({ length: Math.floor(top) + 1 }, (_, i) => i).filter((i) => i % Math.ceil(top / 7) === 0);
  charts.push(chart("safe_chart", width, x, first, last, {
    height: (value) => Math.min(value / top, 1),
    ticks: whole.map((count) => [count, count > 4 ? `1−1e-${count}` : percent(Math.log1p(-(10 ** -count)))]),
    lines: {
      orange: (point) => point.held === null ? null : nines(point.held),
      blue: (point) => point.safe === null ? null : nines(point.safe),
    },
    levels: [[wanted, `wanted: ${percent(Math.log(setting.confidence))}`, "end", true]],
    mark: [nines(Math.log(achieved)), percent(Math.log(achieved))],
    say: (point) => point.safe === null ? `n̂ = ${point.n}: not safe` : `n̂ = ${point.n}: ${percent(point.safe)}`,
  }));
  element("held_text").textContent = `b̂ = ${tolerated} whatever n̂`;
  point(null);
}

/** One chart over n̂. Lines break where they have no value. Returns where things are, for the cursor. */
function chart(id, width, x, first, last, { height, ticks, lines, levels, mark, say }) {
  const bottom = HEIGHT - BOTTOM, right = width - RIGHT;
  const y = (value) => bottom - (bottom - TOP) * height(value);
  const text = (at, up, words, kind) => `<text x="${at.toFixed(1)}" y="${up.toFixed(1)}" class="${kind}">${words}</text>`;
  const { found: { fewest, sampled }, points } = drawn;
  const parts = [`<rect class="never" x="${LEFT}" y="${TOP}" width="${x(fewest) - LEFT}" height="${bottom - TOP}"/>`];
  for (const [value, label] of ticks) {
    parts.push(`<path class="grid" d="M${LEFT} ${y(value)}H${right}"/>`, text(LEFT - 6, y(value) + 4, label, "end"));
  }
  const labels = new Map([[sampled, "plan middle"], [fewest, "least middle"]]);
  for (const tick of [sampled, fewest, ...logTicks(first, last).filter(Number.isInteger)]) {
    const room = 12 + 4 * String(tick).length;
    if (tick !== sampled && Math.abs(x(tick) - x(sampled)) < room) continue;
    if (!labels.has(tick) && Math.abs(x(tick) - x(fewest)) < room) continue;
    parts.push(`<path class="grid" d="M${x(tick)} ${bottom}v4"/>`, text(x(tick), HEIGHT - 6, tick, labels.get(tick) ?? "middle"));
  }
  for (const [value] of levels) parts.push(`<path class="level" d="M${LEFT} ${y(value)}H${right}"/>`);
  for (const [color, valueOf] of Object.entries(lines)) {
    let path = "", pen = false;
    for (const point of points) {
      const value = valueOf(point);
      path += value === null ? "" : `${pen ? "L" : "M"}${x(point.n).toFixed(1)} ${y(value).toFixed(1)}${pen ? "" : "h0"}`;
      pen = value !== null;
    }
    parts.push(`<path class="line ${color}" d="${path}"/>`);
  }
  for (const [value, label, side, under] of levels.filter((level) => level[2] === "end" || level[0] !== mark[0])) {
    const below = under && bottom - y(value) > 20;
    parts.push(text(side === "end" ? right : x(fewest) + 8, y(value) + (below ? 15 : -5), label, `${side} halo`));
  }
  const far = x(sampled) > 0.62 * width, side = far ? "end" : "start";
  parts.push(
    `<circle class="least" cx="${x(fewest)}" cy="${bottom}" r="4"/>`,
    `<circle class="plan" cx="${x(sampled)}" cy="${y(mark[0])}" r="6"/>`,
    text(x(sampled) + (far ? -10 : 10), y(mark[0]) + (far ? 18 : -9), mark[1], `plan ${side} halo`),
    '<g class="cursor"></g>',
  );
  const svg = element(id);
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  svg.setAttribute("height", HEIGHT);
  svg.innerHTML = parts.join("");
  svg.setAttribute("aria-label", `${svg.dataset.title} At the plan's n̂ = ${sampled}: ${mark[1]}.`);
  return { svg, y, valueOf: lines.blue, say, bottom, right };
}

/** Point at the i-th sample size in all charts, or at none. */
function point(i) {
  if (!drawn) return;
  drawn.at = i;
  const here = i === null ? null : drawn.points[i];
  for (const { svg, y, valueOf, say, bottom, right } of drawn.charts) {
    const cursor = svg.querySelector(".cursor");
    if (here === null) { cursor.innerHTML = ""; continue; }
    const at = drawn.x(here.n), value = valueOf(here), far = at > right / 2;
    const dot = value === null ? "" : `<circle cx="${at}" cy="${y(value)}" r="4"/>`;
    cursor.innerHTML = `<path d="M${at} ${TOP}V${bottom}"/>${dot}` +
      `<text x="${at + (far ? -8 : 8)}" y="${TOP - 5}" class="${far ? "end" : "start"} halo">${say(here)}</text>`;
  }
  element("readout").textContent = here === null ? "Point at the curves, or use the arrow keys, to read them."
    : here.b === null ? `n̂ = ${here.n}: no tolerance below half is safe.`
    : `n̂ = ${here.n}: tolerate ${here.b} (${short(100 * here.b / here.n)}%)` +
      `${here.kappa < Infinity ? `, proved κ = ${short(here.kappa)}` : ", but too few would reply"}, safe run ${percent(here.safe)}.`;
}

/** The drawn sample size nearest to a place on the screen. */
function nearest(event) {
  const at = event.clientX - element("charts").getBoundingClientRect().left;
  const distances = drawn.points.map(({ n }) => Math.abs(drawn.x(n) - at));
  return distances.indexOf(Math.min(...distances));
}

function arrows(event) {
  const plans = drawn.points.findIndex(({ n }) => n === drawn.found.sampled), last = drawn.points.length - 1;
  const at = drawn.at ?? plans;
  const moves = { ArrowLeft: Math.max(0, at - 1), ArrowRight: Math.min(last, at + 1), Home: 0, End: last, Escape: null };
  if (!(event.key in moves)) return;
  event.preventDefault();
  point(moves[event.key]);
}

// ---- The page: begin -----------------------------------------------------------------------------------------

function begin(start) {
  for (const [id, value] of Object.entries(start)) element(id).value = value ?? "";
  element("more").open = start.retries > 0 || start.bound !== "exact" || start.max_kappa !== null || start.rule !== "{{ default_rule }}";
  element("ask").addEventListener("input", (event) => changed(event.target.id));
  element("ask").addEventListener("submit", (event) => event.preventDefault());
  element("charts").addEventListener("pointermove", (event) => drawn && point(nearest(event)));
  element("charts").addEventListener("pointerdown", (event) => drawn && point(nearest(event)));
  element("charts").addEventListener("pointerleave", () => point(null));
  element("charts").addEventListener("keydown", arrows);
  element("copy").addEventListener("click", copy);
  changed("byzantine");
  new ResizeObserver(() => drawn && draw(drawn.found)).observe(element("charts"));
}

/** Copy the command; where the browser does not allow it, select it, so that a key press does. */
async function copy() {
  try {
    await navigator.clipboard.writeText(element("command").textContent.trim());
    element("copy").textContent = "Copied";
    setTimeout(() => { element("copy").textContent = "Copy"; }, 1500);
  } catch {
    getSelection().selectAllChildren(element("command"));
  }
}

begin(JSON.parse(element("start").textContent));
