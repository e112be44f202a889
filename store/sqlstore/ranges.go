package sqlstore

import (
	"encoding/binary"
	"errors"

	"github.com/shardway/shardway"
)

// What a history entry says to routers is stored as bytes: a version, the key
// kind, then for each changed range the low and the high key, each after its
// length as a uvarint; length 0 is the open end. Too many ranges for one value
// are not kept: an entry without ranges concerns the whole map. In place of the
// kind of no range, shardsOnly says that no mapping changed. Programs older than
// this mark ignore it: they take such an entry for one of the whole map.
const (
	rangesVersion = 1
	shardsOnly    = 0xff
	maxRangeBytes = 4 << 20 // what every engine's default packet size carries
)

var errRanges = errors.New("ranges of a history entry cannot be read")

func encodeRanges(ranges []shardway.Range, only bool) []byte {
	none := []byte{rangesVersion, 0}
	switch {
	case len(ranges) == 0 && only:
		return []byte{rangesVersion, shardsOnly}
	case len(ranges) == 0:
		return none
	}
	b := []byte{rangesVersion, byte(ranges[0].Low.Kind())}
	for _, r := range ranges {
		b = appendKey(appendKey(b, r.Low), r.High)
	}
	if len(b) > maxRangeBytes {
		return none
	}
	return b
}

func appendKey(b []byte, k shardway.Key) []byte {
	enc := k.Encoded()
	return append(binary.AppendUvarint(b, uint64(len(enc))), enc...)
}

// decodeRanges is the inverse of encodeRanges.
func decodeRanges(b []byte) (ranges []shardway.Range, only bool, err error) {
	if len(b) < 2 || b[0] != rangesVersion {
		return nil, false, errRanges
	}
	if b[1] == shardsOnly && len(b) == 2 {
		return nil, true, nil
	}
	kind := shardway.KeyKind(b[1])
	for b = b[2:]; len(b) > 0; {
		var keys [2][]byte
		for i := range keys {
			n, size := binary.Uvarint(b)
			if size <= 0 || n > uint64(len(b)-size) {
				return nil, false, errRanges
			}
			if b = b[size:]; n > 0 {
				keys[i] = b[:n]
			}
			b = b[n:]
		}
		r, err := decodeRange(kind, keys[0], keys[1])
		if err != nil {
			return nil, false, errors.Join(errRanges, err)
		}
		ranges = append(ranges, r)
	}
	return ranges, false, nil
}
