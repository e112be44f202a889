package topology_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/shardway/shardway/topology"
)

// DSN-02: hosts of every form round-trip and compare equal to themselves.
// DSN-07: the port is part of the identity.
func TestParseAddress(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text        string
		defaultPort int
		want        string
		host        string
		port        int
		network     string
	}{
		{"db1:5433", 5432, "db1:5433", "db1", 5433, "tcp"},
		{"DB1.Example.COM", 5432, "db1.example.com:5432", "db1.example.com", 5432, "tcp"},
		{"db1.example.com.", 3306, "db1.example.com.:3306", "db1.example.com.", 3306, "tcp"},
		{"10.0.0.1:1", 0, "10.0.0.1:1", "10.0.0.1", 1, "tcp"},
		{"[::1]:5432", 0, "[::1]:5432", "::1", 5432, "tcp"},
		{"[::1]", 3306, "[::1]:3306", "::1", 3306, "tcp"},
		{"[0:0:0:0:0:0:0:1]:65535", 0, "[::1]:65535", "::1", 65535, "tcp"},
		{"[fe80::1%lo]:1433", 0, "[fe80::1%lo]:1433", "fe80::1%lo", 1433, "tcp"},
		{"/var/run/postgresql", 5432, "/var/run/postgresql", "/var/run/postgresql", 0, "unix"},
		{"/var/run/postgresql:5433", 5432, "/var/run/postgresql:5433", "/var/run/postgresql", 5433, "unix"},
		{"/tmp/a:b.sock", 0, "/tmp/a:b.sock", "/tmp/a:b.sock", 0, "unix"},
	} {
		t.Run(test.text, func(t *testing.T) {
			t.Parallel()
			got, err := topology.ParseAddress(test.text, test.defaultPort)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != test.want || got.Host != test.host || got.Port != test.port || got.Network() != test.network {
				t.Errorf("got %q %+v network %s, want %q host %q port %d network %s",
					got, got, got.Network(), test.want, test.host, test.port, test.network)
			}
			again, err := topology.ParseAddress(got.String(), 1)
			if err != nil || again != got {
				t.Errorf("read back as %+v, %v", again, err)
			}
		})
	}
}

func TestParseAddress_refused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text        string
		defaultPort int
		want        string // must stand in the error's text
	}{
		{"", 5432, "host:port"},
		{"db1", 0, "no port"},
		{"[::1]", 0, "no port"},
		{"a:b:c", 5432, "[::1]:5432"},
		{"::1", 5432, "[::1]:5432"},
		{"::1:5432", 5432, "[::1]:5432"},
		{"db1:", 5432, `port ""`},
		{"db1:0", 5432, `port "0"`},
		{"db1:65536", 5432, `port "65536"`},
		{"db1:-1", 5432, `port "-1"`},
		{"db1:+1", 5432, `port "+1"`},
		{"db1:http", 5432, `port "http"`},
		{":5432", 0, "no host"},
		{"[::1", 5432, "not closed"},
		{"[::1]5432", 5432, "must follow"},
		{"[db1]:5432", 5432, "no IPv6"},
		{"[10.0.0.1]:5432", 5432, "no IPv6"},
		{"[::1]:x", 5432, `port "x"`},
		{"a b:5432", 5432, "not allowed"},
		{"a\n:5432", 5432, "not allowed"},
		{"a/b:5432", 5432, "not allowed"},
		{"a,b:5432", 5432, "not allowed"},
		{"postgres://app:secret@db1:5432/x", 5432, "looks like a URL"},
		{"app:secret@db1:5432", 5432, "looks like a URL"},
	} {
		t.Run(test.text, func(t *testing.T) {
			t.Parallel()
			got, err := topology.ParseAddress(test.text, test.defaultPort)
			var refused *topology.AddressError
			if !errors.As(err, &refused) {
				t.Fatalf("got %+v, %v; want an AddressError", got, err)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %q does not contain %q", err, test.want)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("error %q repeats a password", err)
			}
			if got != (topology.Address{}) {
				t.Errorf("address %+v next to an error", got)
			}
		})
	}
}

// DSN-02: a bare IPv6 host is fine where the port is a field of its own.
func TestNewAddress(t *testing.T) {
	t.Parallel()
	got, err := topology.NewAddress("::1", 5432)
	if err != nil || got.String() != "[::1]:5432" {
		t.Errorf("got %v, %v", got, err)
	}
	for _, port := range []int{-1, 0, 65536} {
		if got, err := topology.NewAddress("db1", port); err == nil {
			t.Errorf("port %d gave %v", port, got)
		}
	}
	if got, err := topology.NewAddress("/tmp", -1); err == nil {
		t.Errorf("negative port on a socket gave %v", got)
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, seed := range []string{"db1:5432", "[::1%lo]:1", "/run/x:1", "a:b:c", "::", "é:1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := topology.ParseAddress(text, 5432)
		if err != nil {
			return
		}
		again, err := topology.ParseAddress(got.String(), 1)
		if err != nil || again != got {
			t.Fatalf("%q parsed as %+v, whose text %q reads back as %+v, %v", text, got, got, again, err)
		}
	})
}
