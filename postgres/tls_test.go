package postgres

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/faultconn"
)

// authority signs certificates and is known by a file.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, file: filepath.Join(t.TempDir(), "root.pem")}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	var body []byte
	body, a.key = a.sign(a.cert)
	if err := os.WriteFile(a.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: body}), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// sign returns a certificate and its new key. The authority signs itself first.
func (a *authority) sign(c *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	signer := a.key
	if signer == nil {
		signer = key
	}
	body, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	return body, key
}

// server returns the set-up of a server with a certificate for a name or an
// address that ends at an instant.
func (a *authority) server(name string, end time.Time) *tls.Config {
	a.t.Helper()
	c := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: end.Add(-2 * time.Hour), NotAfter: end, DNSNames: []string{name}}
	if ip := net.ParseIP(name); ip != nil {
		c.DNSNames, c.IPAddresses = nil, []net.IP{ip}
	}
	body, key := a.sign(c)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{body}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}
}

// serve answers the request for encryption of one client, and hears the rest.
func serve(l *faultconn.Listener, reply string, config *tls.Config) faultconn.Heard {
	request := make([]byte, 8)
	if _, err := io.ReadFull(l, request); err != nil || binary.BigEndian.Uint32(request[4:]) != 80877103 {
		_, _ = l.Read(make([]byte, 512)) // whatever it says without having asked
		return l.Heard()
	}
	if _, err := l.Write([]byte(reply)); err != nil || config == nil {
		_, _ = io.Copy(io.Discard, l)
		return l.Heard()
	}
	return l.HearTLS(config)
}

// SEC-02: when encryption is required, a server that refuses it, that breaks
// the handshake, or whose certificate is expired or for another name, gets
// neither login nor database nor password in clear, however often it is tried.
func TestNoPlainTextAfterTLSFails(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	later := time.Now().Add(time.Hour)
	checked := "sslmode=verify-full&sslrootcert=" + url.QueryEscape(a.file)
	for name, c := range map[string]struct {
		options, reply string
		config         *tls.Config
		login          bool // reaches the server, encrypted
	}{
		"refused":                 {checked, "N", nil, false},
		"refused, required":       {"sslmode=require", "N", nil, false},
		"an error":                {checked, "E", nil, false},
		"broken handshake":        {checked, "S\x15\x03\x01\x00\x02\x02\x28", nil, false},
		"broken, required":        {"sslmode=require", "Sno such thing", nil, false},
		"another name":            {checked, "S", a.server("other.example", later), false},
		"expired":                 {checked, "S", a.server("127.0.0.1", time.Now().Add(-time.Minute)), false},
		"another authority":       {checked, "S", newAuthority(t).server("127.0.0.1", later), false},
		"all is well":             {checked, "S", a.server("127.0.0.1", later), true},
		"required, but unchecked": {"sslmode=require", "S", a.server("other.example", later), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serving := func(l *faultconn.Listener) faultconn.Heard { return serve(l, c.reply, c.config) }
			connect := func(addr string) error {
				login := shardway.Credentials{User: "anna-herself", Password: "s3cr3t"}
				conn, err := connectorFor(t, Engine{Options: c.options}, addr, "db-of-anna", login).Connect(t.Context())
				if err == nil {
					_ = conn.Close()
				}
				return err
			}
			login := faultconn.Impostor(t, serving, connect, "anna-herself", "db-of-anna", "s3cr3t")
			if login != c.login {
				t.Errorf("the login reached the server: %v, want %v", login, c.login)
			}
		})
	}
}
