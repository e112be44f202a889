package shardway

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// keyForms says what a person may type for each kind.
var keyForms = [...]string{
	KindInt32:    "a whole number from -2147483648 to 2147483647",
	KindInt64:    "a whole number from -9223372036854775808 to 9223372036854775807",
	KindUint64:   "a whole number from 0 to 18446744073709551615",
	KindUUID:     "a UUID such as 6ba7b810-9dad-11d1-80b4-00c04fd430c8",
	KindString:   "text of at most 128 bytes",
	KindBytes:    "hex digits such as 0x00ff, at most 128 bytes",
	KindTime:     "a time such as 2026-01-31, 2026-01-31T12:00:00Z or 2026-01-31 12:00:00.123456 (UTC unless a zone is given)",
	KindDuration: "a duration such as 90s or 36h15m",
}

// ParseKey reads a key as people type it. What [Key.String] prints is always
// accepted and gives the same key. UUIDs may also be upper case, in braces,
// without dashes or with the prefix urn:uuid:. Times may have up to nine
// fractional digits; what is finer than a microsecond is cut off.
func ParseKey(kind KeyKind, text string) (Key, error) {
	if !kind.Valid() {
		return Key{}, &ArgumentError{Argument: "key kind", Value: kind.String(), Reason: "is not a key kind"}
	}
	k, err := parseKey(kind, text)
	if err != nil {
		return Key{}, &ArgumentError{
			Argument: "key", Value: text,
			Reason: fmt.Sprintf("is not %s %s key: expected %s", article(kind), kind, keyForms[kind]),
		}
	}
	return k, nil
}

// article is the indefinite article of a key kind's name.
func article(kind KeyKind) string {
	if kind == KindInt32 || kind == KindInt64 {
		return "an"
	}
	return "a"
}

func parseKey(kind KeyKind, text string) (Key, error) {
	switch kind {
	case KindInt32:
		v, err := strconv.ParseInt(text, 10, 32)
		return Int32Key(int32(v)), err
	case KindInt64:
		v, err := strconv.ParseInt(text, 10, 64)
		return Int64Key(v), err
	case KindUint64:
		v, err := strconv.ParseUint(text, 10, 64)
		return Uint64Key(v), err
	case KindUUID:
		u, err := parseUUID(text)
		return UUIDKey(u), err
	case KindString:
		return StringKey(text)
	case KindBytes:
		b, err := hex.DecodeString(strings.TrimPrefix(text, "0x"))
		if err != nil {
			return Key{}, err
		}
		return BytesKey(b)
	case KindTime:
		// Years beyond four digits are printed as the microseconds since 1970.
		if micros, ok := strings.CutSuffix(text, "us"); ok {
			v, err := strconv.ParseInt(micros, 10, 64)
			return Key{kind: KindTime, hi: uint64(v) ^ sign64}, err
		}
		t, err := parseTime(text)
		if err != nil {
			return Key{}, err
		}
		return TimeKey(t)
	default:
		d, err := time.ParseDuration(text)
		return DurationKey(d), err
	}
}

func parseUUID(text string) (u [16]byte, err error) {
	s := text
	if len(s) > 9 && strings.EqualFold(s[:9], "urn:uuid:") {
		s = s[9:]
	} else if strings.HasPrefix(s, "{") && strings.HasSuffix(s, "}") {
		s = s[1 : len(s)-1]
	}
	if len(s) == 36 {
		if s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
			return u, ErrInvalid
		}
		s = s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	}
	if len(s) != 32 {
		return u, ErrInvalid
	}
	_, err = hex.Decode(u[:], []byte(s))
	return u, err
}

func parseTime(text string) (time.Time, error) {
	var err error
	for _, layout := range []string{
		"2006-01-02T15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999Z07:00",
		"2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006-01-02",
	} {
		var t time.Time
		if t, err = time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, err
}

// String returns the canonical text of the key, which [ParseKey] reads back:
// decimal numbers, lower-case UUIDs, strings as they are, bytes as 0x and hex
// digits, times in UTC as RFC 3339 (or microseconds since 1970 with the suffix
// us, for years beyond four digits), durations as Go writes them.
func (k Key) String() string {
	switch k.kind {
	case KindInt32:
		return strconv.FormatInt(int64(int32(uint32(k.hi)^1<<31)), 10)
	case KindInt64:
		return strconv.FormatInt(int64(k.hi^sign64), 10)
	case KindUint64:
		return strconv.FormatUint(k.hi, 10)
	case KindUUID:
		h := hex.EncodeToString(k.Encoded())
		return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
	case KindString:
		return k.s
	case KindBytes:
		return "0x" + hex.EncodeToString([]byte(k.s))
	case KindTime:
		micros := int64(k.hi ^ sign64)
		if t := time.UnixMicro(micros).UTC(); t.Year() >= 0 && t.Year() <= 9999 {
			return t.Format(time.RFC3339Nano)
		}
		return strconv.FormatInt(micros, 10) + "us"
	case KindDuration:
		return time.Duration(k.hi ^ sign64).String()
	}
	return ""
}

// quoted is String for use inside a sentence: strings are quoted.
func (k Key) quoted() string {
	if k.kind == KindString {
		return strconv.Quote(k.s)
	}
	return k.String()
}
