SELECT VERSION(), CURRENT_USER(), @@global.read_only OR @@global.super_read_only, @@global.innodb_read_only, @@global.transaction_read_only, NULL, NULL
