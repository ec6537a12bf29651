// Requests of the operator view; all of them bring the admin key.

/** An answer other than success. `status` is 0 where there was no answer. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The server beside which the page lies. */
export class Server {
  constructor(key = "") {
    this.key = key;
  }

  /** Return the JSON that a path answers. Raises `Refused`. */
  async json(path, method = "GET") {
    return (await this.ask(path, method)).json();
  }

  /** Return the text that a path answers. Raises `Refused`. */
  async text(path) {
    return (await this.ask(path, "GET")).text();
  }

  async ask(path, method) {
    const headers = this.key ? { authorization: `Bearer ${this.key}` } : {};
    let response;
    try {
      response = await fetch(`../${path}`, { method, headers });
    } catch {
      throw new Refused(0, "The server does not answer.");
    }
    if (response.ok) return response;
    const said = await response.json().catch(() => null);
    throw new Refused(response.status, said?.error?.message ?? `The server answered ${response.status}.`);
  }
}
