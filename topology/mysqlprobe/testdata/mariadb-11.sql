BEGIN NOT ATOMIC
  DECLARE CONTINUE HANDLER FOR 1227 BEGIN END;
  SELECT VERSION(), CURRENT_USER(), @@global.read_only, @@global.innodb_read_only, @@global.transaction_read_only, NULL, NULL;
  SHOW ALL SLAVES STATUS;
  SHOW SLAVE HOSTS;
END
