# Tests that `make test` leaves to `make test-all`: each takes more than about ten seconds, or waits as long, and is not the only proof of what it
# proves. Beside each is what `make test` has instead. Names are those of ctest, without the parameters of GoogleTest.
set(COHORT_SLOW_TESTS
  bench.Process_sharded                  # bench.Process_step; what it prints: docs.Process_docs_zero.md
  chaos.Process_row_1                    # a worker killed: elastic.Process_killed, elastic_processes.ElasticProcesses.Continue*
  chaos.Process_row_3                    # the coordinator killed: elastic.Process_supervised, elastic.Process_coordinated
  chaos.Process_row_6                    # a notice: elastic.Process_preempted
  chaos.Process_row_8                    # stragglers: train.Process_slow
  chaos.Process_row_9                    # networks cut: elastic.Hosts_partitioned, elastic.Hosts_unreachable
  chaos.Process_row_10                   # a network that loses and delays: net.*, chaos.Process_row_12
  chaos.Process_row_13                   # a disk that stands still: checkpoint.Writer.*
  chaos.Process_row_18                   # tests of `make test` again, as rows of the table; so are 23, 24 and 25
  chaos.Process_row_21                   # others with the secret: hostile.Process_intruders
  chaos.Process_row_23
  chaos.Process_row_24
  chaos.Process_row_25
  chaos.Process_row_26                   # ports full of silent connections: net.Acceptor.*, hostile.Process_nodes
  docs.Process_docs_bench.md             # bench.Process_*, and the commands of README.md
  docs.Process_docs_plan.md              # plan.Process_*
  elastic_processes.ElasticHang.IsEvictedUntilItAsksForAnEpochAgain   # a stopped worker: elastic_processes.ElasticProcesses.EvictAStoppedOne*
  elastic.Process_shards_coordinated     # elastic.Process_shards_killed, elastic.Process_supervised
  elastic.Process_shards_left            # elastic.Process_shards_killed, elastic.Process_shards_lost
  backends.GlooLaws.HoldForOneToNineRanksThatShareMemory  # backends.GlooProcess.LawsHoldForProcesses
  laws.ProcessLaws.MoreThan4294967296ElementsAreReducedInPlaceAndStaged
  nn.Resnet50.Learns                     # nn.Resnet18.Learns, and its parameters
  plan.Process_as_it_is_set              # plan.Process_against_measured
  plan.Process_giant                     # plan.Process_elsewhere
  plan.Process_settings                  # plan.Process_choices
  train.Process_early_notice             # train.Process_notice
  train.Process_flipped                  # elastic.Process_flipped
  train.Process_precision_stages         # train.Process_precision
  train.Process_resume_scale_stages      # train.Process_resume_scale
  verify.Process_rules                   # verify.Process_float64 (adamw), cli.Verify.*
)
