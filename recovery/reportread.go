package recovery

import (
	"encoding/hex"
	"strconv"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

func documentPieces(pieces []Difference) []differenceDocument {
	documents := make([]differenceDocument, len(pieces))
	for i, p := range pieces {
		d := differenceDocument{
			Place: p.Place(), Low: p.Range.Low.String(), LowBytes: hex.EncodeToString(p.Range.Low.Encoded()),
			Global: documentClaim(p.Global), Local: documentClaim(p.Local),
		}
		if !p.Range.Open() {
			high := p.Range.High.String()
			d.High, d.HighBytes = &high, hex.EncodeToString(p.Range.High.Encoded())
		}
		if p.Operation != 0 {
			d.Operation = p.Operation.String()
		}
		documents[i] = d
	}
	return documents
}

func documentClaim(c Claim) *claimDocument {
	if c == (Claim{}) {
		return nil
	}
	return &claimDocument{Mapping: c.Mapping.String(), ShardID: hexID(int64(c.ShardID)), Shard: c.Shard, Status: c.Status.String()}
}

// report turns the document into the value that it was.
func (d *reportDocument) report() (Report, error) {
	p := parser{}
	r := Report{
		State: d.State, Problem: d.Problem, StoreID: d.StoreID, Changing: d.Changing, Operation: store.OperationID(p.id(d.Operation)),
		Map: shardway.ShardMap{ID: shardway.MapID(p.id(d.Map.ID)), Name: d.Map.Name, Kind: p.mapKind(d.Map.Kind)},
	}
	kind, err := shardway.ParseKeyKind(d.Map.KeyKind)
	if err != nil {
		return Report{}, err
	}
	r.Map.KeyKind, p.keys = kind, kind
	r.Shard = p.shard(d.Shard, r.Map.ID)
	if d.Local != nil {
		local := p.shard(*d.Local, r.Map.ID)
		r.Local = &local
	}
	for _, f := range d.Fields {
		r.Fields = append(r.Fields, Field(f))
	}
	r.Differences, r.Pending = p.pieces(d.Differences, r.Map.Kind), p.pieces(d.Pending, r.Map.Kind)
	return r, p.err
}

// parser reads the texts of a document and keeps the first error.
type parser struct {
	keys shardway.KeyKind
	err  error
}

func (p *parser) fail(err error) {
	if p.err == nil && err != nil {
		p.err = err
	}
}

func (p *parser) id(text string) int64 {
	if text == "" {
		return 0
	}
	v, err := strconv.ParseInt(text, 16, 64)
	if err != nil || len(text) != 16 || v < 0 {
		p.fail(&shardway.ArgumentError{Argument: "id", Value: text, Reason: "is no id: those have 16 hex digits, the first one 0 to 7"})
	}
	return v
}

func (p *parser) mapKind(text string) shardway.MapKind {
	for _, k := range []shardway.MapKind{shardway.ListMap, shardway.RangeMap} {
		if k.String() == text {
			return k
		}
	}
	p.fail(&shardway.ArgumentError{Argument: "map kind", Value: text, Reason: "is neither list nor range"})
	return 0
}

// oneOf reads a status: the first text stands for 0, the second for 1.
func (p *parser) oneOf(text, zero, one string) uint8 {
	if text != zero && text != one {
		p.fail(&shardway.ArgumentError{Argument: "status", Value: text, Reason: "is neither online nor offline"})
	}
	if text == one {
		return 1
	}
	return 0
}

func (p *parser) key(text string) shardway.Key {
	enc, err := hex.DecodeString(text)
	p.fail(err)
	k, err := shardway.DecodeKey(p.keys, enc)
	p.fail(err)
	return k
}

func (p *parser) shard(d shardDocument, m shardway.MapID) shardway.Shard {
	s := shardway.Shard{
		ID: shardway.ShardID(p.id(d.ID)), MapID: m, Name: d.Name, Version: p.id(d.Version),
		Location: shardway.Location{Engine: d.Engine, Database: d.Database},
		Status:   shardway.ShardStatus(p.oneOf(d.Status, "online", "offline")),
	}
	for _, server := range d.Servers {
		s.Location.Servers = append(s.Location.Servers, shardway.Server(server))
	}
	return s
}

func (p *parser) claim(d *claimDocument) Claim {
	if d == nil {
		return Claim{}
	}
	return Claim{
		Mapping: shardway.MappingID(p.id(d.Mapping)), ShardID: shardway.ShardID(p.id(d.ShardID)), Shard: d.Shard,
		Status: shardway.MappingStatus(p.oneOf(d.Status, "offline", "online")),
	}
}

func (p *parser) pieces(documents []differenceDocument, kind shardway.MapKind) []Difference {
	var pieces []Difference
	for _, d := range documents {
		piece := Difference{Global: p.claim(d.Global), Local: p.claim(d.Local), Operation: store.OperationID(p.id(d.Operation))}
		piece.Range.Low = p.key(d.LowBytes)
		if d.High != nil {
			piece.Range.High = p.key(d.HighBytes)
		}
		if kind == shardway.RangeMap && p.err == nil {
			p.fail(piece.Range.Validate())
		}
		if n := len(pieces); n > 0 && p.err == nil && !precedes(kind, pieces[n-1].Range, piece.Range) {
			p.fail(&shardway.ArgumentError{Argument: "differences", Value: piece.Range.String(), Reason: "are not in key order"})
		}
		pieces = append(pieces, piece)
	}
	return pieces
}
