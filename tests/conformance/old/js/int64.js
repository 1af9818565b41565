// What prozess and buffermaker use of the package bignum: an int64.
"use strict";

class Int64 {
  constructor(value) {
    this.value = BigInt(value instanceof Int64 ? value.value : value);
  }
  add(other) {
    return new Int64(this.value + other.value);
  }
  eq(other) {
    return this.value === new Int64(other).value;
  }
  toString() {
    return this.value.toString();
  }
  toBuffer() {
    const bytes = Buffer.alloc(8);
    bytes.writeBigInt64BE(this.value);
    return bytes;
  }
}

module.exports = (value) => new Int64(value);
module.exports.fromBuffer = (bytes) => new Int64(bytes.readBigInt64BE());
