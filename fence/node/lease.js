// Leases: what a transaction claims with.

// A held lock. The holder is the proof of holding, so it is not printed.
export class Lease {
  constructor(resource, token, holder = "") {
    this.resource = resource;
    this.token = token;
    Object.defineProperty(this, "holder", { value: holder });
  }

  // The lease of `lock-client run`, whose command this process is.
  static fromEnvironment() {
    const [resource, token, holder] = ["RESOURCE", "TOKEN", "HOLDER"].map((part) => {
      const value = process.env[`FENCING_${part}`];
      if (value === undefined) {
        throw new Error(`FENCING_${part} is not set: run this program by \`lock-client run\``);
      }
      return value;
    });
    if (!/^\d+$/.test(token) || !Number.isSafeInteger(Number(token))) {
      throw new RangeError(`FENCING_TOKEN is not a token: ${token}`);
    }
    return new Lease(resource, Number(token), holder);
  }

  // The lease in a JSON object: the handle that `lock-client acquire` prints.
  static fromJson(text) {
    const { name, resource = name, token, holder } = JSON.parse(text);
    return new Lease(resource, token, holder);
  }
}

// Returns the leases in the byte order of their resources, in which claims can't deadlock.
export function inClaimOrder(leases) {
  const claims = Array.isArray(leases) ? [...leases] : [leases];
  if (claims.length === 0) throw new TypeError("there is no lease to claim with");
  for (const { resource, token, holder } of claims) {
    if (resource === undefined || token === undefined || holder === undefined) {
      throw new TypeError("a lease has a resource, a token and a holder");
    }
  }
  const bytes = ({ resource }) => Buffer.from(resource);
  return claims.sort((one, other) => Buffer.compare(bytes(one), bytes(other)));
}
