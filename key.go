package shardway

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"
	"unsafe"
)

// KeyKind is the type of a sharding key. Every shard map has exactly one.
// The zero value is no kind and is refused wherever a kind is needed. The
// numbers are stored and never change.
type KeyKind uint8

// The key kinds and their order.
const (
	KindInt32    KeyKind = 1 // numeric order
	KindInt64    KeyKind = 2 // numeric order
	KindUint64   KeyKind = 3 // numeric order
	KindUUID     KeyKind = 4 // order of the 16 bytes, which is the order of the canonical text
	KindString   KeyKind = 5 // byte order, never a collation; at most MaxKeyBytes
	KindBytes    KeyKind = 6 // byte order, trailing zeros count; at most MaxKeyBytes
	KindTime     KeyKind = 7 // UTC instant in microseconds; finer parts are cut off towards the past
	KindDuration KeyKind = 8 // nanoseconds
)

// MaxKeyBytes bounds the length of string and bytes keys.
const MaxKeyBytes = 128

// MaxEncodedBytes bounds the length of every encoded key.
const MaxEncodedBytes = 2*MaxKeyBytes + 2

var kindNames = [...]string{"", "int32", "int64", "uint64", "uuid", "string", "bytes", "time", "duration"}

// String returns the kind's name: int32, int64, uint64, uuid, string, bytes,
// time or duration; "invalid" for any other value.
func (k KeyKind) String() string {
	if !k.Valid() {
		return "invalid"
	}
	return kindNames[k]
}

// Valid reports whether k is one of the defined kinds.
func (k KeyKind) Valid() bool { return k >= KindInt32 && k <= KindDuration }

// Fixed reports whether keys of the kind compare as one unsigned 64-bit number.
func (k KeyKind) Fixed() bool {
	return k.Valid() && k != KindUUID && k != KindString && k != KindBytes
}

// ParseKeyKind returns the kind with the given name.
func ParseKeyKind(name string) (KeyKind, error) {
	for i, n := range kindNames {
		if n == name && i > 0 {
			return KeyKind(i), nil
		}
	}
	return 0, &ArgumentError{Argument: "key kind", Value: name, Reason: "is none of " + strings.Join(kindNames[1:], ", ")}
}

// KeyType lists the Go types that can be sharding keys. Any type whose
// underlying type is [16]byte is a UUID.
type KeyType interface {
	int32 | int64 | uint64 | ~[16]byte | string | []byte | time.Time | time.Duration
}

// Key is a sharding key: a kind and a value. Keys are comparable with ==,
// immutable and safe for concurrent use. The zero value is no key; it is
// refused by every lookup and stands for the open end in [Range.High].
type Key struct {
	kind   KeyKind
	hi, lo uint64 // fixed kinds: hi, in unsigned order; UUID: both halves
	s      string // string and bytes
}

// KeyOf returns the key for a value, or an [ArgumentError] when the value
// cannot be a key: nil or too long bytes, too long a string, a time outside
// the years that fit 64 bits of microseconds.
func KeyOf[K KeyType](v K) (Key, error) {
	switch v := any(v).(type) {
	case int64:
		return Int64Key(v), nil
	case int32:
		return Int32Key(v), nil
	case uint64:
		return Uint64Key(v), nil
	case [16]byte:
		return UUIDKey(v), nil
	case string:
		return StringKey(v)
	case []byte:
		return BytesKey(v)
	case time.Time:
		return TimeKey(v)
	case time.Duration:
		return DurationKey(v), nil
	}
	// Only a named UUID type is left, and its underlying type is [16]byte.
	// Reflection would allocate on the way of every request.
	return UUIDKey(*(*[16]byte)(unsafe.Pointer(&v))), nil
}

// KindOf returns the key kind of a Go type.
func KindOf[K KeyType]() KeyKind {
	var zero K
	switch any(zero).(type) {
	case int32:
		return KindInt32
	case int64:
		return KindInt64
	case uint64:
		return KindUint64
	case string:
		return KindString
	case []byte:
		return KindBytes
	case time.Time:
		return KindTime
	case time.Duration:
		return KindDuration
	}
	return KindUUID
}

const sign64 = 1 << 63

// Int32Key returns the key for v.
func Int32Key(v int32) Key { return Key{kind: KindInt32, hi: uint64(uint32(v) ^ 1<<31)} }

// Int64Key returns the key for v.
func Int64Key(v int64) Key { return Key{kind: KindInt64, hi: uint64(v) ^ sign64} }

// Uint64Key returns the key for v.
func Uint64Key(v uint64) Key { return Key{kind: KindUint64, hi: v} }

// UUIDKey returns the key for v.
func UUIDKey(v [16]byte) Key {
	return Key{kind: KindUUID, hi: binary.BigEndian.Uint64(v[:8]), lo: binary.BigEndian.Uint64(v[8:])}
}

// DurationKey returns the key for v.
func DurationKey(v time.Duration) Key { return Key{kind: KindDuration, hi: uint64(v) ^ sign64} }

// StringKey returns the key for v; the empty string is a legal key and sorts first.
func StringKey(v string) (Key, error) {
	if len(v) > MaxKeyBytes {
		return Key{}, tooLong(len(v))
	}
	return Key{kind: KindString, s: v}, nil
}

// BytesKey returns the key for a copy of v. An empty slice is a legal key and
// sorts first; nil is [ErrKeyRequired].
func BytesKey(v []byte) (Key, error) {
	if v == nil {
		return Key{}, ErrKeyRequired
	}
	if len(v) > MaxKeyBytes {
		return Key{}, tooLong(len(v))
	}
	return Key{kind: KindBytes, s: string(v)}, nil
}

// TimeKey returns the key for the instant v, cut to microseconds towards the past.
func TimeKey(v time.Time) (Key, error) {
	const bound = math.MaxInt64 / 1_000_000
	if s := v.Unix(); s >= bound || s <= -bound {
		return Key{}, &ArgumentError{Argument: "key", Value: v.String(), Reason: "is outside the range of time keys"}
	}
	micros := v.Unix()*1_000_000 + int64(v.Nanosecond()/1000)
	return Key{kind: KindTime, hi: uint64(micros) ^ sign64}, nil
}

func tooLong(n int) error {
	return &ArgumentError{Argument: "key", Value: fmt.Sprintf("%d bytes", n), Reason: fmt.Sprintf("is longer than %d bytes", MaxKeyBytes)}
}

// Kind returns the key's kind, 0 for the zero value.
func (k Key) Kind() KeyKind { return k.kind }

// IsZero reports whether k is the zero value, which is no key.
func (k Key) IsZero() bool { return k.kind == 0 }

// Uint64 returns the number by which keys of a fixed kind are ordered
// ([KeyKind.Fixed]); 0 for the others.
func (k Key) Uint64() uint64 {
	if !k.kind.Fixed() {
		return 0
	}
	return k.hi
}

// Compare returns -1, 0 or 1 as k sorts before, at or after other. The zero
// value sorts before every key. Comparing keys of two kinds is a bug and panics.
func (k Key) Compare(other Key) int {
	if k.kind != other.kind && k.kind != 0 && other.kind != 0 {
		panic(fmt.Sprintf("shardway: comparing a %s key with a %s key", k.kind, other.kind))
	}
	return cmp.Or(cmp.Compare(k.kind, other.kind), cmp.Compare(k.hi, other.hi),
		cmp.Compare(k.lo, other.lo), cmp.Compare(k.s, other.s))
}

// MinKey returns the smallest key of a kind.
func MinKey(kind KeyKind) Key { return Key{kind: kind} }

// AppendEncoded appends the order-preserving encoding of k: for two keys of
// one kind, encode(a) < encode(b) bytewise if and only if a < b, and no
// encoding is a prefix of another. Numbers are big-endian with the sign bit
// flipped. In string and bytes keys 0x00 becomes 0x00 0xFF and 0x00 0x01 ends
// the key, so that engines which pad with zeros compare right and encodings
// can be concatenated. The zero value appends nothing.
func (k Key) AppendEncoded(dst []byte) []byte {
	switch k.kind {
	case 0:
		return dst
	case KindInt32:
		return binary.BigEndian.AppendUint32(dst, uint32(k.hi))
	case KindUUID:
		return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, k.hi), k.lo)
	case KindString, KindBytes:
		for i := range len(k.s) {
			dst = append(dst, k.s[i])
			if k.s[i] == 0 {
				dst = append(dst, 0xff)
			}
		}
		return append(dst, 0x00, 0x01)
	default:
		return binary.BigEndian.AppendUint64(dst, k.hi)
	}
}

// Encoded returns the encoding of [Key.AppendEncoded]; nil for the zero value.
func (k Key) Encoded() []byte { return k.AppendEncoded(nil) }

// DecodeKey is the inverse of [Key.AppendEncoded]. Nil decodes to the zero
// value. Bytes that no key encodes to are an error: they mean a damaged store.
func DecodeKey(kind KeyKind, enc []byte) (Key, error) {
	if enc == nil {
		return Key{}, nil
	}
	bad := func() (Key, error) {
		return Key{}, fmt.Errorf("decoding %s key from %x: %w", kind, enc, ErrInvalid)
	}
	switch kind {
	case KindInt32:
		if len(enc) != 4 {
			return bad()
		}
		return Key{kind: kind, hi: uint64(binary.BigEndian.Uint32(enc))}, nil
	case KindUUID:
		if len(enc) != 16 {
			return bad()
		}
		return UUIDKey([16]byte(enc)), nil
	case KindString, KindBytes:
		if !validEncoding(kind, enc) {
			return bad()
		}
		raw := bytes.ReplaceAll(enc[:len(enc)-2], []byte{0x00, 0xff}, []byte{0x00})
		return Key{kind: kind, s: string(raw)}, nil
	default:
		if !kind.Valid() || len(enc) != 8 {
			return bad()
		}
		return Key{kind: kind, hi: binary.BigEndian.Uint64(enc)}, nil
	}
}

// validEncoding reports whether enc is the encoding of a UUID, string or bytes
// key. It allocates nothing.
func validEncoding(kind KeyKind, enc []byte) bool {
	if kind == KindUUID {
		return len(enc) == 16
	}
	n := len(enc) - 2
	if n < 0 || enc[n] != 0x00 || enc[n+1] != 0x01 {
		return false
	}
	raw := 0
	for i := 0; i < n; i, raw = i+1, raw+1 {
		if enc[i] != 0x00 {
			continue
		}
		if i++; enc[i] != 0xff { // the last zero is followed by the end mark at the latest
			return false
		}
	}
	return raw <= MaxKeyBytes
}
