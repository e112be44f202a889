package mongotest

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Fault is how a command goes wrong. The zero value does nothing, once.
type Fault struct {
	// Code is the error's, such as 91 (ShutdownInProgress); 0 means no error.
	Code int32
	// Labels are the error's, such as "TransientTransactionError". RetryableWriteError
	// is added where MongoDB adds it: numbered writes and a retryable code.
	Labels []string
	// Message is the error's text; empty means a canned one.
	Message string
	// Drop ends the connection instead of a reply.
	Drop bool
	// Delay passes before anything else.
	Delay time.Duration
	// Times is how often it happens; 0 means once, less than 0 always.
	Times int
	// AfterReply lets the command be done first, so that only its reply is lost.
	AfterReply bool
}

// Fail lets a command go wrong, after the faults of the same command that are still to come. "hello" stands for each
// form of it, "*" for every other command. It counts as received all the same.
func (s *Server) Fail(command string, fault Fault) {
	if fault.Times == 0 {
		fault.Times = 1
	}
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	s.faults[command] = append(s.faults[command], &fault)
}

// Heal takes back the faults of a command that are still to come.
func (s *Server) Heal(command string) {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	delete(s.faults, command)
}

// take returns the next fault of a command and the delay of every reply.
func (s *Server) take(command string) (Fault, time.Duration) {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	key := command
	if len(s.faults[key]) == 0 && command != "hello" {
		key = "*"
	}
	queue := s.faults[key]
	if len(queue) == 0 {
		return Fault{}, s.delay
	}
	fault := *queue[0]
	if fault.Times > 0 {
		queue[0].Times--
		if queue[0].Times == 0 {
			s.faults[key] = queue[1:]
		}
	}
	return fault, s.delay
}

// document is the fault's reply, or nil if it has none.
func (f Fault) document() bson.D {
	if f.Code == 0 {
		return nil
	}
	text := f.Message
	if text == "" {
		text = "mongotest: injected fault"
	}
	return failure(f.Code, text, f.Labels...)
}

// codeNames are MongoDB's names of the codes that the package uses.
var codeNames = map[int32]string{
	2: "BadValue", 6: "HostUnreachable", 11: "UserDataInconsistent", 20: "IllegalOperation", 26: "NamespaceNotFound",
	43: "CursorNotFound", 48: "NamespaceExists", 59: "CommandNotFound", 72: "InvalidOptions", 89: "NetworkTimeout",
	91: "ShutdownInProgress", 112: "WriteConflict", 189: "PrimarySteppedDown", 251: "NoSuchTransaction",
	256: "TransactionCommitted", 10058: "NotPrimaryOrSecondary", 10107: "NotWritablePrimary", 11000: "DuplicateKey",
	11600: "InterruptedAtShutdown", 11602: "InterruptedDueToReplStateChange", 13435: "NotPrimaryNoSecondaryOk",
	13436: "NotPrimaryOrSecondary",
}

const (
	codeBadValue         = 2
	codeIllegalOperation = 20
	codeCursorNotFound   = 43
	codeCommandNotFound  = 59
	codeWriteConflict    = 112
	codeNoSuchTxn        = 251
	codeDuplicateKey     = 11000

	labelTransient = "TransientTransactionError"
	labelRetryable = "RetryableWriteError"
)

// failure is an error's reply.
func failure(code int32, text string, labels ...string) bson.D {
	reply := bson.D{{Key: "ok", Value: 0.0}, {Key: "errmsg", Value: text}, {Key: "code", Value: code}}
	if name, ok := codeNames[code]; ok {
		reply = append(reply, bson.E{Key: "codeName", Value: name})
	}
	if len(labels) > 0 {
		reply = append(reply, bson.E{Key: "errorLabels", Value: labels})
	}
	return reply
}
