// Goroutines and a WaitGroup. The arguments and what is printed are those of
// peer.h.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var kept uint64

func arithmetic(x uint64, rounds int) uint64 {
	for i := 0; i < rounds; i++ {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

func run(tasks int, task func()) {
	var group sync.WaitGroup
	group.Add(tasks)
	for i := 0; i < tasks; i++ {
		go func() {
			task()
			group.Done()
		}()
	}
	group.Wait()
}

func cpu() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail(err.Error())
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

func measure(repeats int, function func()) {
	function()
	for i := 0; i < repeats; i++ {
		wall, before := time.Now(), cpu()
		function()
		used := cpu() - before
		fmt.Println(time.Since(wall).Nanoseconds(), used)
	}
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, message)
	os.Exit(2)
}

func main() {
	if len(os.Args) != 6 {
		fail("usage: goroutines MEASURE TASKS ROUNDS THREADS REPEATS")
	}
	var numbers [4]int
	for i := range numbers {
		n, err := strconv.Atoi(os.Args[2+i])
		if err != nil {
			fail(err.Error())
		}
		numbers[i] = n
	}
	tasks, rounds, repeats := numbers[0], numbers[1], numbers[3]
	runtime.GOMAXPROCS(numbers[2])
	switch os.Args[1] {
	case "empty":
		measure(repeats, func() { run(tasks, func() {}) })
	case "compute":
		measure(repeats, func() {
			run(tasks, func() {
				// Stored, so that it is not left out; rarely, so that it is no
				// shared counter.
				if x := arithmetic(uint64(rounds), rounds); x == 0 {
					atomic.StoreUint64(&kept, x)
				}
			})
		})
	case "single":
		measure(repeats, func() {
			for i := 0; i < tasks; i++ {
				run(1, func() {})
			}
		})
	default:
		fail(os.Args[1] + ": not a measure")
	}
}
