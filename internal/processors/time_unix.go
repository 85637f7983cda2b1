//go:build unix

package processors

import (
	"syscall"
	"time"
)

var processTime = func() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0 // looks like an idle process
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
