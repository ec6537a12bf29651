// What an operator can do: each action asks first, says what it did, and shows what it found.
import { phases } from "./tables.mjs";

const ACTIONS = {
  pause: {
    path: "pause?mode=wait&clear_cache=false",
    question: "Pause the server? What runs finishes, what comes waits, and /ready answers 503 until you resume.",
    done: () => "The server is paused.",
  },
  resume: { path: "resume", question: "Resume? Requests that wait are served.", done: () => "The server serves again." },
  reset: {
    path: "reset_prefix_cache",
    question: "Empty the prefix cache? Prompts that were read before are read again.",
    done: () => "The prefix cache is empty.",
  },
  "profile-start": {
    path: "start_profile",
    question: "Time the phases of the engine's steps, until you stop it? Steps take a little longer meanwhile.",
    done: () => "The profile is running.",
  },
  "profile-stop": {
    path: "stop_profile",
    question: "Stop the profile and show what it found?",
    done: () => "The profile has ended.",
  },
  drain: {
    path: "drain",
    question: "Drain and end the server? New requests are refused, what runs finishes, then the process exits. "
      + "It does not start again by itself.",
    done: ({ in_flight, at_most_s }) => `The server ends: ${in_flight} in flight, at most ${at_most_s} s.`,
  },
};

/** The buttons of a `View`. */
export class Actions {
  constructor(view) {
    this.view = view;
    for (const name of Object.keys(ACTIONS)) view.$(name).addEventListener("click", () => this.press(name));
    view.$("confirm").addEventListener("close", () => this.answer?.(view.$("confirm").returnValue === "yes"));
  }

  /** Show which actions make sense in a state of the server. */
  show({ paused, draining, profiling }) {
    const { $ } = this.view;
    $("pause").disabled = paused || draining;
    $("resume").disabled = !paused || draining;
    $("drain").disabled = draining;
    $("profile-start").disabled = profiling || draining;
    $("profile-stop").disabled = !profiling;
  }

  async press(name) {
    const { path, question, done } = ACTIONS[name], { view } = this;
    if (!await this.sure(question)) return;
    view.say("…");
    try {
      const found = await view.server.json(path, "POST");
      view.say(done(found));
      if (found.phases) view.$("profile").replaceChildren(phases(found.phases));
    } catch (error) {
      view.say(error.message);
    }
    view.soon();
  }

  /** Return whether the operator means it. */
  sure(question) {
    const { $ } = this.view;
    $("question").textContent = question;
    $("confirm").returnValue = "";
    $("confirm").showModal();
    return new Promise((resolve) => { this.answer = resolve; });
  }
}
