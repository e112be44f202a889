package mapfile

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"time"
	"unicode/utf8"

	"github.com/shardway/shardway"
)

// The JSON forms, in the order in which they are written. What is empty is left
// out, but for names, keys and statuses.
type (
	serverDocument struct {
		Address string            `json:"address"`
		Tags    map[string]string `json:"tags,omitempty"`
	}
	shardDocument struct {
		Name     string           `json:"name"`
		Status   string           `json:"status"`
		Engine   string           `json:"engine"`
		Database string           `json:"database,omitempty"`
		Servers  []serverDocument `json:"servers"`
	}
	lockDocument struct {
		Owner   string `json:"owner"`
		Reason  string `json:"reason,omitempty"`
		Expires string `json:"expires,omitempty"`
	}
	// A key stands under its name or, when it is text that is no UTF-8, as hex
	// digits of its bytes under that name with _hex.
	mappingDocument struct {
		Key     *string       `json:"key,omitempty"`
		KeyHex  *string       `json:"key_hex,omitempty"`
		Low     *string       `json:"low,omitempty"`
		LowHex  *string       `json:"low_hex,omitempty"`
		High    *string       `json:"high,omitempty"` // neither high nor high_hex: an open end
		HighHex *string       `json:"high_hex,omitempty"`
		Shard   string        `json:"shard"`
		Status  string        `json:"status"`
		Lock    *lockDocument `json:"lock,omitempty"`
	}
)

// Write writes a file: JSON with one line for each shard and each mapping, in
// the order of names and keys, so that the same maps always give the same text.
func Write(w io.Writer, f File) error {
	f.sort()
	b := bufio.NewWriterSize(w, 1<<16)
	p := &printer{w: b}
	p.text("{\n  \"format\": ").value(Format).text(",\n  \"version\": ").value(Version).text(",\n  \"maps\": [")
	for i, m := range f.Maps {
		p.next(i, "\n    ").text("{\n      \"name\": ").value(m.Name).text(",\n      \"kind\": ").value(m.Kind.String()).
			text(",\n      \"key\": ").value(m.KeyKind.String()).text(",\n      \"shards\": [")
		for j, s := range m.Shards {
			p.next(j, "\n        ").value(documentShard(s))
		}
		p.end(len(m.Shards), "\n      ]").text(",\n      \"mappings\": [")
		for j, mp := range m.Mappings {
			p.next(j, "\n        ").value(documentMapping(m.Kind, mp))
		}
		p.end(len(m.Mappings), "\n      ]").text("\n    }")
	}
	p.end(len(f.Maps), "\n  ]").text("\n}\n")
	if p.err != nil {
		return p.err
	}
	return b.Flush()
}

// printer keeps the first error of many writes.
type printer struct {
	w   *bufio.Writer
	err error
}

func (p *printer) text(s string) *printer {
	if p.err == nil {
		_, p.err = p.w.WriteString(s)
	}
	return p
}

func (p *printer) value(v any) *printer {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil && p.err == nil {
		p.err = err
	}
	return p.text(string(bytes.TrimSpace(b.Bytes())))
}

// next begins the i-th item of a list.
func (p *printer) next(i int, indent string) *printer {
	if i > 0 {
		p.text(",")
	}
	return p.text(indent)
}

// end ends a list of n items.
func (p *printer) end(n int, text string) *printer {
	if n == 0 {
		return p.text("]")
	}
	return p.text(text)
}

func documentShard(s Shard) shardDocument {
	d := shardDocument{Name: s.Name, Status: s.Status.String(), Engine: s.Location.Engine, Database: s.Location.Database, Servers: []serverDocument{}}
	for _, srv := range s.Location.Servers {
		d.Servers = append(d.Servers, serverDocument(srv))
	}
	return d
}

func documentMapping(kind shardway.MapKind, m Mapping) mappingDocument {
	d := mappingDocument{Shard: m.Shard, Status: m.Status.String()}
	if kind == shardway.ListMap {
		d.Key, d.KeyHex = KeyText(m.Range.Low)
	} else {
		d.Low, d.LowHex = KeyText(m.Range.Low)
		d.High, d.HighHex = KeyText(m.Range.High)
	}
	if m.Lock != nil {
		d.Lock = &lockDocument{Owner: m.Lock.Owner, Reason: m.Lock.Reason}
		if !m.Lock.Expires.IsZero() {
			d.Lock.Expires = m.Lock.Expires.UTC().Format(time.RFC3339Nano)
		}
	}
	return d
}

// KeyText returns a key as JSON can hold it without loss: as the text that
// people type or, for text that is no UTF-8, as the hex digits of its bytes. The
// zero value has neither.
func KeyText(k shardway.Key) (text, hexText *string) {
	if k.IsZero() {
		return nil, nil
	}
	s := k.String()
	if utf8.ValidString(s) {
		return &s, nil
	}
	s = hex.EncodeToString([]byte(s))
	return nil, &s
}
