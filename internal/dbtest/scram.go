package dbtest

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// quickSecret turns a password into the verifier that PostgreSQL stores for SCRAM-SHA-256 (RFC 5802), with one round
// of hashing where the server would take 4096: logging in checks the password all the same and takes a tenth of the
// time, of which tests under the race detector spend much. The password must be ASCII, which needs no normalising.
func quickSecret(password string) (string, error) {
	const rounds, saltBytes = 1, 16
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // never fails
	salted, err := pbkdf2.Key(sha256.New, password, salt, rounds, sha256.Size)
	if err != nil {
		return "", fmt.Errorf("hashing a password: %w", err)
	}
	stored := sha256.Sum256(keyed(salted, "Client Key"))
	text := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", rounds, text(salt), text(stored[:]), text(keyed(salted, "Server Key"))), nil
}

func keyed(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
