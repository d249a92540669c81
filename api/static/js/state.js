// The state that all pages share, as signals: user, tasks, daemon, unread notifications and the current time.
import { computed, signal } from "../vendor/preact.js";
import { Refused, get } from "./api.js";
import { currentMs } from "./server_time.js";

/** The response of /api/auth/status; null until it has loaded. */
export const me = signal(null);
/** All tasks and services; null until they have loaded. */
export const units = signal(null);
/** The response of /api/daemon; null until it has loaded, and for a token that is limited to some tasks. */
export const daemon = signal(null);
/** How many of the last responses of /api/daemon in succession said that the scheduler does not answer. */
export const schedulerAbsences = signal(0);
export const unread = signal(0);
/** Whether the modules come from the bundle of a release, not from a checkout one by one. */
export const bundled = import.meta.url.includes("/bundle/");
/** The message of the last load of shared state if it failed, otherwise null. */
export const trouble = signal(null);
/** The current time in milliseconds since the epoch, updated every second while the page is visible. */
export const now = signal(currentMs());
/** The newest measurement of the host, from the event stream. */
export const sample = signal(null);

setInterval(() => {
  if (!document.hidden) now.value = currentMs();
}, 1000);

const RANKS = { viewer: 0, operator: 1, cloud: 1, admin: 2 };
export const mayOperate = computed(() => (RANKS[me.value?.role] ?? -1) >= 1);
/** Whether the token is limited to some tasks; it then has no access to resources of the whole daemon. */
export const isLimited = computed(() => Boolean(me.value?.tasks));
export const isAdmin = computed(() => me.value?.role === "admin" && !isLimited.value);

/** Return the task or service of that name, or undefined. */
export const unitNamed = (name) => units.value?.find((unit) => unit.name === name);

/** Return the index of a run's instance in brackets, with a space before it; "" if its unit has only one instance. */
export function instanceOf(run) {
  const several = (unitNamed(run.taskName)?.instances?.length ?? 1) > 1;
  return several || run.instanceIndex ? ` [${run.instanceIndex}]` : "";
}

async function load(what) {
  try {
    await what();
    trouble.value = null;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.status !== 401 && error.status !== 403) trouble.value = error.message;
  }
}

/**
 * Return a function that shows the answer of `read`, unless a later call has shown its own: on a busy host, answers
 * arrive in another order.
 */
function newest(read, show) {
  let asked = 0;
  let shown = 0;
  return () =>
    load(async () => {
      const mine = ++asked;
      const answer = await read();
      if (mine < shown) return;
      shown = mine;
      show(answer);
    });
}

export const loadUnits = newest(
  () => get("api/tasks"),
  ({ items }) => {
    units.value = items;
  },
);

export const loadDaemon = newest(
  async () => (isLimited.value ? null : get("api/daemon")),
  (answer) => {
    daemon.value = answer;
    schedulerAbsences.value = answer?.schedulerActive === false ? schedulerAbsences.value + 1 : 0;
  },
);

export const loadUnread = newest(
  async () => (isLimited.value ? { count: 0 } : get("api/notifications/unreadCount")),
  ({ count }) => {
    unread.value = count;
  },
);

export const loadAll = () => Promise.all([loadUnits(), loadDaemon(), loadUnread()]);

/**
 * Return a function that calls `work` after at least 50 ms, and at most once in `everyMs`.
 * last: when the work was done last, in milliseconds since the epoch.
 */
export function throttle(work, everyMs, last = 0) {
  let timer = null;
  return () => {
    if (timer !== null) return;
    timer = setTimeout(
      () => {
        timer = null;
        last = Date.now();
        work();
      },
      Math.max(50, last + everyMs - Date.now()),
    );
  };
}
