package retry

// labels are those that MongoDB and its driver put on errors, in the order in
// which they count: the specifications of transactions, of retryable writes and
// of client backpressure. All labels of a row must be there.
var labels = [...]struct {
	all     []string
	verdict verdict
	meaning string
}{
	{[]string{"UnknownTransactionCommitResult"}, unknown, "the answer to commitTransaction was lost"},
	{[]string{"TransientTransactionError", "SystemOverloadedError"}, later, "the transaction was aborted, the server is overloaded"},
	{[]string{"TransientTransactionError"}, again, "the transaction was aborted"},
	{[]string{"RetryableError", "SystemOverloadedError"}, later, "refused, the server is overloaded"},
	{[]string{"NoWritesPerformed", "SystemOverloadedError"}, later, "nothing was written, the server is overloaded"},
	{[]string{"RetryableError"}, again, "may be repeated whatever it was"},
	{[]string{"NoWritesPerformed", "RetryableWriteError"}, again, "nothing was written"},
	{[]string{"RetryableWriteError"}, broken, "the driver has already repeated the write; it may have been done"},
	{[]string{"NetworkError"}, broken, "the connection broke"},
}

// mongoCodes are codes of errors without such labels.
var mongoCodes = [...]struct {
	code    int
	verdict verdict
	meaning string
}{
	{24, again, "LockTimeout"},
	{91, broken, "ShutdownInProgress"},
	{112, again, "WriteConflict"},
	{189, again, "PrimarySteppedDown"},
	{462, later, "IngressRequestRateLimitExceeded"},
	{10058, again, "not primary, as old servers say it"},
	{10107, again, "NotWritablePrimary"},
	{11600, broken, "InterruptedAtShutdown"},
	{11602, broken, "InterruptedDueToReplStateChange"},
	{13435, again, "NotPrimaryNoSecondaryOk"},
	{13436, again, "NotPrimaryOrSecondary"},
}

// labelled returns the verdict on err alone if it is an error of MongoDB.
func labelled(err error) (verdict, bool) {
	e, ok := err.(interface{ HasErrorLabel(label string) bool })
	if !ok {
		return unmarked, false
	}
next:
	for i := range labels {
		for _, label := range labels[i].all {
			if !e.HasErrorLabel(label) {
				continue next
			}
		}
		return labels[i].verdict, true
	}
	coded, ok := err.(interface{ HasErrorCode(code int) bool })
	if !ok {
		return unmarked, false
	}
	for i := range mongoCodes {
		if coded.HasErrorCode(mongoCodes[i].code) {
			return mongoCodes[i].verdict, true
		}
	}
	return unmarked, false
}
