// Classifies a log line: its level, its position in a stack trace, and its JSON object.
import { plain } from "./escapes.js";

/** Levels, worst first, each with its letter in the gutter. */
export const LEVELS = { error: "E", warn: "W", info: "I", debug: "D" };
const RANK = Object.keys(LEVELS);
const NAMES = {
  error: ["error", "err", "fatal", "critical", "crit", "panic", "emerg", "emergency", "alert", "severe"],
  warn: ["warn", "warning"],
  info: ["info", "notice", "information"],
  debug: ["debug", "trace", "verbose", "fine"],
};
const BY_NAME = new Map(Object.entries(NAMES).flatMap(([level, names]) => names.map((name) => [name, level])));
const ANY = [...BY_NAME.keys()].join("|");
const HEAD = 120; // characters at the start of a line that are searched for a level
const WORD = new RegExp(`(?:^|[\\s\\[(<|:])(${ANY.toUpperCase()})(?=$|[\\s\\])>|:,])`);
const LOGFMT = new RegExp(`\\b(?:level|lvl|severity)["']?\\s*[=:]\\s*["']?(${ANY})\\b`, "i");
const BRACKETS = new RegExp(`^.{0,60}?[\\[<(](${ANY})[\\])>]`, "i");
/** The form of compilers and command-line tools: "main.c:3:5: error: …", "pg_dump: warning: …". */
const AFTER_NAME = new RegExp(`^[^\\s:]+(?::\\d+)*: (?:fatal )?(${ANY}): `, "i");
const BEGIN = new RegExp(`^(${ANY}):\\s`, "i");
const GLOG = /^([EWIF])\d{4} \d\d:\d\d/;
const GLOG_LEVELS = { E: "error", F: "error", W: "warn", I: "info" };
const KEYS = ["level", "severity", "lvl", "levelname", "log.level", "@l"];
const EXCEPTION = /^(?:Exception in thread |Caused by: )?(?:[\w$]+\.)*[A-Z][\w$]*(?:Error|Exception|Failure)\b(?:: |$)/;
const FRAME = /^\s+(?:at\s\S|File ".*", line \d|\.\.\. \d+ (?:more|common))|^\t\S+\.go:\d+|^goroutine \d+ \[/;
const TRACEBACK = /^(?:Traceback \(most recent call last\)|During handling of the above|Caused by: )/;

/** Return the object of a line that is a JSON object; null for any other line. */
export function objectOf(text) {
  if (text.charCodeAt(0) !== 123 || !text.trimEnd().endsWith("}")) return null;
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Map a numeric level of pino or bunyan, 10 (trace) to 60 (fatal). */
const ofNumber = (value) => (value >= 50 ? "error" : value >= 40 ? "warn" : value >= 30 ? "info" : "debug");

function ofObject(found) {
  for (const key of KEYS) {
    const value = found[key];
    if (typeof value === "number") return ofNumber(value);
    if (typeof value === "string") return BY_NAME.get(value.toLowerCase()) ?? null;
  }
  return null;
}

function levelOfText(full) {
  const text = plain(full.slice(0, 4 * HEAD)).slice(0, HEAD);
  if (text.charCodeAt(0) === 123) {
    const found = objectOf(plain(full));
    if (found) return ofObject(found);
  }
  const glog = GLOG.exec(text);
  if (glog) return GLOG_LEVELS[glog[1]];
  const named = (LOGFMT.exec(text) ?? WORD.exec(text) ?? BEGIN.exec(text) ?? AFTER_NAME.exec(text) ?? BRACKETS.exec(text))?.[1];
  if (named) return BY_NAME.get(named.toLowerCase());
  return EXCEPTION.test(text) || TRACEBACK.test(text) || FRAME.test(text) ? "error" : null;
}

/** Return the level of a line, or null if it names none. `line.level` caches the result. */
export function levelOf(line) {
  if (line.level === undefined) line.level = levelOfText(line.text);
  return line.level;
}

/** Whether a line has level `least` or a worse one. */
export function isAtLeast(line, least) {
  const level = levelOf(line);
  return level !== null && RANK.indexOf(level) <= RANK.indexOf(least);
}

/**
 * Set `line.frame`, its index in a stack trace from 0, and `line.trace`, the number of the trace's first frame.
 * Outside stack traces both are undefined. A frame without a level becomes an error. before: the previous line.
 */
export function placeInTrace(line, before) {
  const text = line.text;
  const follows = before?.n === line.n - 1 && before.stream === line.stream && before.runId === line.runId && before.frame !== undefined;
  const frame = FRAME.test(text) || (follows && /^\s+\S/.test(text));
  line.frame = frame ? (follows ? before.frame + 1 : 0) : undefined;
  line.trace = frame ? (follows ? before.trace : line.n) : undefined;
  if (frame && levelOf(line) === null) line.level = "error";
}
